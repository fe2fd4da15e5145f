"""What a device of a TPU slice holds, sends and computes in a training step, by the compiler; no TPU is needed.

python benchmarks/scaling.py [--config bert_tiny] [--phase short] [--rows 16] [--slices v5e:2x2 v5e:8x8 v5e:16x16]
    [--meshes 1,1 4,1 1,2] [--config.KEY=VALUE ...]

Compiles the step of the config in bfloat16 with --rows rows for every device of `data` and `fsdp`, on every slice, for
every mesh of --meshes: FSDP,TENSOR, where `data` takes the rest. Prints a Markdown row for each; megabytes are those of
one device in one step, sent by a ring. The last column is arithmetic: a sum of P float32 gradients over `data`. Needs
libtpu.
"""

import argparse
import math
import os
from collections import Counter

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"}  # before libtpu is loaded
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

import jax  # noqa: E402
from jax.experimental import topologies  # noqa: E402

from bert_jax import axes, build, config, program, sharding  # noqa: E402
from bert_jax.objectives.base import Vocabulary  # noqa: E402

HEAD = (
    "| slice | devices, hosts | `data x fsdp x tensor` | state and rows | temporaries | largest array | cycles"
    " | rows, bytes of a row that a host reads | sent | gradients over `data`: 2 (D - 1) / D x 4 P / (fsdp x tensor) |"
)
VOCABULARY = Vocabulary(30522, pad=0, unk=100, cls=101, sep=102, mask=103)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--config", default="bert_tiny")
    options.add_argument("--phase", default="short")
    options.add_argument("--rows", type=int, default=16)
    options.add_argument("--slices", nargs="+", default=["v5e:2x2", "v5e:8x8", "v5e:16x16"])
    options.add_argument("--meshes", nargs="+", default=["1,1", "4,1", "1,2"])
    options, more = options.parse_known_args()
    more = [key.removeprefix("--config.") for key in more]
    print(f"{HEAD}\n{'| --- ' * (HEAD.count('|') - 1)}|")
    for shape in options.meshes:
        fsdp, tensor = shape.split(",")
        mesh = [f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}"]
        for name in options.slices:
            slice_ = topologies.get_topology_desc(platform="tpu", topology_name=name)
            found = measure(options, [*more, *mesh], list(slice_.devices))
            print(row(name, int(fsdp), int(tensor), found), flush=True)


def measure(options, overrides: list[str], devices: list) -> dict:
    mesh = sharding.make_mesh(config.load(options.config, overrides).mesh, devices)
    sharding.check_model(mesh, config.load(options.config, overrides).model)
    hosts = len({device.process_index for device in devices})
    batch = options.rows * sharding.axis_size(mesh, axes.ROWS)
    overrides = [*overrides, "dtype=bfloat16", f"phase_order={options.phase}"]
    settings = config.find(options.config)
    settings.phases = {options.phase: settings.phases[options.phase]}
    for override in [*overrides, f"phases.{options.phase}.batch={batch}"]:
        config.apply(settings, override)
    config.check(settings)
    made = build.build(settings, mesh, VOCABULARY)
    text = made.train[options.phase].as_text()
    sizes = program.memory(made.train[options.phase])
    sent, rows = Counter(), build.batch_shapes(mesh, config.phases(settings)[0], batch, sequences=1)
    for collective in program.collectives(text, mesh):
        key = f"{collective.kind} {collective.dtype} over {'+'.join(collective.axes)}"
        sent[key] += round(collective.sent)
    arrays = (a for i in program.instructions(text) for a in i.results)
    read = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in rows.values())
    return {
        "data": mesh.shape["data"],
        "hosts": hosts,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(made.shapes.params)),
        "state and rows": sizes.arguments,
        "temporaries": sizes.temporaries,
        "largest array": max(array.bytes for array in arrays),
        "cycles": program.cycles(text),
        "rows of a host": len(sharding.host_rows(mesh, batch, 0)),
        "bytes of a row": read // batch,
        "sent": dict(sorted(sent.items())),
    }


def row(name: str, fsdp: int, tensor: int, found: dict) -> str:
    data, megabytes = found["data"], lambda count: f"{count / 1e6:.2f} MB"
    gradients = 2 * (data - 1) / data * 4 * found["parameters"] / (fsdp * tensor)
    cells = [
        name,
        f"{data * fsdp * tensor}, {found['hosts']}",
        f"{data} x {fsdp} x {tensor}",
        *(megabytes(found[key]) for key in ("state and rows", "temporaries", "largest array")),
        f"{found['cycles']:,}",
        f"{found['rows of a host']}, {found['bytes of a row']:,}",
        "; ".join(f"{megabytes(count)} {what}" for what, count in found["sent"].items()),
        megabytes(gradients),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
