"""What dropout costs a device on meshes of different size, as the TPU compiler sees it; no TPU is needed, libtpu is.

python benchmarks/randomness.py [--slices v5e:2x2 v5e:8x8 v5e:16x16] [--rows 64] [--length 128] [--width 768]

A dense layer, dropout, and their gradients in bfloat16, with the same rows a device on every slice. Prints a table: the
compiler's cycles, temporary memory, and the largest array of random bits on a device (as a multiple of the activations
that lie on it), for our dropout, for that of jax.random with either generator, and without any.
"""

import argparse
import math
import os

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"}  # before libtpu is loaded
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402
from ml_collections import ConfigDict  # noqa: E402

from bert_jax import axes, hash, program, sharding  # noqa: E402
from bert_jax.models import layers  # noqa: E402

RATE = 0.1


def ours(x, rows, seed):
    return layers.dropout(x, hash.fold(seed, rows), RATE)


def library(generator: str):
    def drop(x, rows, seed):
        kept = jax.random.bernoulli(jax.random.key(seed, impl=generator), 1 - RATE, x.shape)
        return jnp.where(kept, x / (1 - RATE), 0).astype(x.dtype)

    return drop


KINDS = {
    "none": lambda x, rows, seed: x,
    "ours": ours,
    "jax.random, threefry2x32": library("threefry2x32"),
    "jax.random, rbg": library("rbg"),
}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--slices", nargs="+", default=["v5e:2x2", "v5e:8x8", "v5e:16x16"])
    for name, default in (("rows", 64), ("length", 128), ("width", 768)):
        options.add_argument(f"--{name}", type=int, default=default)
    options = options.parse_args()
    print(
        "| dropout | devices | cycles | temporaries, MB | random bits |\n| --- | --- | --- | --- | --- |"
    )
    for kind, drop in KINDS.items():
        for name in options.slices:
            slice_ = topologies.get_topology_desc(platform="tpu", topology_name=name)
            shape = options.rows, options.length, options.width
            print(measure(kind, drop, list(slice_.devices), *shape), flush=True)


def measure(kind: str, drop, devices, rows: int, length: int, width: int) -> str:
    mesh = sharding.make_mesh(ConfigDict(dict(data=-1, fsdp=1, tensor=1)), devices)

    def loss(kernel, x, numbers, seed):
        y = axes.activation(drop(axes.activation(x @ kernel), numbers, seed))
        return (y * y).mean(dtype=jnp.float32)

    def placed(shape, dtype, spec):
        place = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    batch = rows * mesh.size
    shapes = (
        placed((width, width), jnp.bfloat16, ()),
        placed((batch, length, width), jnp.bfloat16, (axes.ROWS,)),
        placed((batch,), jnp.uint32, (axes.ROWS,)),
        placed((), jnp.uint32, ()),
    )
    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.grad(loss)).lower(*shapes).compile()
    text = compiled.as_text()
    made = [
        math.prod(array.shape)
        for instruction in program.instructions(text)
        for array in instruction.results
        if array.dtype in ("u32", "u8", "u64", "u16")
    ]
    bits = max(made, default=0) / (rows * length * width)
    megabytes = program.memory(compiled).temporaries / 1e6
    return f"| {kind} | {mesh.size} | {program.cycles(text):,} | {megabytes:.1f} | {bits:.2f} |"


if __name__ == "__main__":
    main()
