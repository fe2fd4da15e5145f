"""What dropout costs a device on meshes of different size, as the TPU compiler sees it; no TPU is needed, libtpu is.

python benchmarks/randomness.py [--slices v5e:2x2 v5e:8x8 v5e:16x16] [--rows 64] [--length 128] [--width 768]

A dense layer, dropout, and their gradients in bfloat16, with the same rows a device on every slice. Prints a table: the
compiler's cycles, temporary memory, and the largest array of random bits on a device (as a multiple of the activations
that lie on it), for our dropout, for that of jax.random with either generator, and without any.
"""

import math
import os
import sys

# Before JAX is imported: libtpu is here to compile, and has no devices.
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from bert_jax import prng
from bert_jax.cli import Parser, positive
from bert_jax.errors import BadInput
from bert_jax.models import layers
from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import (
    hlo,
    timeline,
    topology,
)

RATE = 0.1


def ours(x, rows, seed):
    return layers.dropout(x, prng.fold(seed, rows), RATE)


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


def main(arguments: list[str] | None = None) -> int:
    options = Parser(description=__doc__.splitlines()[0])
    options.add_argument("--slices", nargs="+", default=["v5e:2x2", "v5e:8x8", "v5e:16x16"])
    for name, default in (("rows", 64), ("length", 128), ("width", 768)):
        options.add_argument(f"--{name}", type=positive, default=default)
    try:
        options = options.parse_args(arguments)
        slices = [topology.devices(topology.find(name)) for name in options.slices]
    except BadInput as error:
        print(f"randomness.py: {error}", file=sys.stderr)
        return 2
    print(
        "| dropout | devices | cycles | temporaries, MB | random bits |\n| --- | --- | --- | --- | --- |"
    )
    for kind, drop in KINDS.items():
        for devices in slices:
            shape = options.rows, options.length, options.width
            print(measure(kind, drop, devices, *shape), flush=True)
    return 0


def measure(kind: str, drop, devices, rows: int, length: int, width: int) -> str:
    mesh = meshes.make_mesh(ConfigDict(dict(data=-1, fsdp=1, tensor=1)), devices)

    def loss(kernel, x, numbers, seed):
        y = constraints.activation(drop(constraints.activation(x @ kernel), numbers, seed))
        return (y * y).mean(dtype=jnp.float32)

    def placed(shape, dtype, spec):
        place = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    batch = rows * mesh.size
    shapes = (
        placed((width, width), jnp.bfloat16, ()),
        placed((batch, length, width), jnp.bfloat16, (constraints.ROWS,)),
        placed((batch,), jnp.uint32, (constraints.ROWS,)),
        placed((), jnp.uint32, ()),
    )
    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.grad(loss)).lower(*shapes).compile()
    text = compiled.as_text()
    made = [
        math.prod(array.shape)
        for instruction in hlo.instructions(text)
        for array in instruction.results
        if array.dtype in ("u32", "u8", "u64", "u16")
    ]
    bits = max(made, default=0) / (rows * length * width)
    megabytes = hlo.memory(compiled).temporaries / 1e6
    cycles = timeline.cycles(timeline.read(text, mesh))
    return f"| {kind} | {mesh.size} | {cycles:,} | {megabytes:.1f} | {bits:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
