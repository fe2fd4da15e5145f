"""What a device of a TPU slice holds, sends and computes in a training step, by the compiler; no TPU is needed.

python benchmarks/scaling.py [--config bert_tiny] [--phase short] [--rows 16] [--slices v5e:2x2 v5e:8x8 v5e:16x16]
    [--meshes 1,1 4,1 1,2] [--config.KEY=VALUE ...]

Compiles the step of the config in bfloat16 with --rows rows for every device of `data` and `fsdp`, on every slice, for
every mesh of --meshes: FSDP,TENSOR, where `data` takes the rest. Prints a Markdown row for each; megabytes are those of
one device in one step, sent by a ring. The last column is arithmetic: a sum of P float32 gradients over `data`. Needs
libtpu.
"""

import math
import os
import sys
from collections import Counter
from typing import NamedTuple

# Before JAX is imported: libtpu is here to compile, and has no devices.
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from ml_collections import ConfigDict

from bert_jax import build, config
from bert_jax import config as configs
from bert_jax.cli import Parser, positive
from bert_jax.errors import BadInput
from bert_jax.objectives.base import Vocabulary
from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, hlo, timeline, topology
from bert_jax.runs import out_of_memory

HEAD = (
    "| slice | devices, hosts | `data x fsdp x tensor` | state and rows | temporaries | largest array | cycles"
    " | rows, bytes of a row that a host reads | sent | gradients over `data`: 2 (D - 1) / D x 4 P / (fsdp x tensor) |"
)
VOCABULARY = Vocabulary(30522, pad=0, unk=100, cls=101, sep=102, mask=103)


def main(arguments: list[str] | None = None) -> int:
    options = Parser(description=__doc__.splitlines()[0])
    options.add_argument("--config", default="bert_tiny")
    options.add_argument("--phase", default="short")
    options.add_argument("--rows", type=positive, default=16)
    options.add_argument("--slices", nargs="+", default=["v5e:2x2", "v5e:8x8", "v5e:16x16"])
    options.add_argument("--meshes", nargs="+", default=["1,1", "4,1", "1,2"])
    try:
        options, overrides = options.parse_known_args(arguments)
        cases = [
            open_case(options, overrides, shape, topology.find(name))
            for shape in options.meshes
            for name in options.slices
        ]
        print(f"{HEAD}\n{'| --- ' * (HEAD.count('|') - 1)}|")
        for case in cases:
            print(row(case.name, case.mesh, measure(*case[1:])), flush=True)
    except BadInput as error:
        print(f"scaling.py: {error}", file=sys.stderr)
        return 2
    return 0


class Case(NamedTuple):
    name: str  # of the slice
    settings: ConfigDict
    mesh: jax.sharding.Mesh
    phase: config.Phase


def open_case(options, overrides: list[str], shape: str, one: topology.Slice) -> Case:
    """Raises BadInput where it cannot be compiled."""
    if unknown := [word for word in overrides if not word.startswith("--config.")]:
        raise BadInput(f"{unknown[0]}: unknown; see --help")
    if shape.count(",") != 1:
        raise BadInput(f"--meshes {shape}: expected FSDP,TENSOR")
    fsdp, tensor = shape.split(",")
    keys = [word.removeprefix("--config.") for word in overrides]
    keys += [f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}", "dtype=bfloat16"]
    settings = config.load(options.config, keys)
    (phase,) = configs.choose_phases(settings, options.phase)
    devices = topology.devices(one)
    rows = options.rows * meshes.axis_size(
        meshes.make_mesh(settings.mesh, devices), constraints.ROWS
    )
    phase = phase._replace(batch=rows)
    return Case(one.name, settings, build.make_mesh(settings, [phase], devices), phase)


def measure(settings, mesh, phase) -> dict:
    design = build.design(settings, mesh, VOCABULARY)
    with compilation.uncached(), out_of_memory.told(f"phase {phase.name}, a step"):
        train = compilation.lower(settings, design, phase).compile()
    text, sizes = train.as_text(), hlo.memory(train)
    sent, rows = Counter(), build.batch_shapes(mesh, phase, phase.batch, phase.sequences)
    for collective in hlo.collectives(text, mesh):
        key = f"{collective.kind} {collective.dtype} over {'+'.join(collective.axes)}"
        sent[key] += round(collective.sent)
    arrays = (a for i in hlo.instructions(text) for a in i.results)
    read = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in rows.values())
    return {
        "hosts": len({device.process_index for device in mesh.devices.flat}),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(design.shapes.params)),
        "state and rows": sizes.arguments,
        "temporaries": sizes.temporaries,
        "largest array": max(array.bytes for array in arrays),
        "cycles": timeline.cycles(timeline.read(text, mesh)),
        "rows of a host": len(meshes.host_rows(mesh, phase.batch, 0)),
        "bytes of a row": read // phase.batch,
        "sent": dict(sorted(sent.items())),
    }


def row(name: str, mesh, found: dict) -> str:
    def megabytes(count: float) -> str:
        return f"{count / 1e6:.2f} MB"

    data, fsdp, tensor = (mesh.shape[axis] for axis in meshes.AXES)
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
    sys.exit(main())
