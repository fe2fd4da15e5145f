"""HLO programs to parse: small ones compiled for the CPU and for a TPU slice, and saved ones."""

import json
import re

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from kits.paths import ROOT
from kits.slices import compiling, devices

from bert_jax.planning import hlo

# The TPU compiler's output for some functions, by name; a `full` test of test_hlo.py compiles them again.
SAVED = ROOT / "tests/golden/tpu_programs.json"


def mesh_on(platform, shape=(2, 4), names=("data", "tensor")):
    chips = jax.devices() if platform == "cpu" else devices("v5e:2x4")
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape), devices=chips)


def compiled(function, mesh, shape=(256, 1024), spec=("data", "tensor")):
    """Compiles a function of each device's part of float32[shape]."""
    spec = P(*spec)
    mapped = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    x = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
    with compiling():
        return jax.jit(mapped).lower(x).compile()


def collectives(text: str, mesh) -> list[tuple[hlo.Collective, str]]:
    """Returns every collective of a program with the text of its instruction, once even if a TPU splits it."""
    result = {}
    for name, instructions in hlo.computations(text)[0].items():
        for instruction in instructions:
            for number, part in enumerate(hlo.collectives(instruction, name, mesh)):
                key = hlo.chain(instruction) or (name, instruction.name)
                result[key, number] = part, instruction.text
    return list(result.values())


def saved(name: str) -> str:
    return json.loads(SAVED.read_text())[name]


def save(texts: dict[str, str]) -> None:
    """Saves programs, without the tables of source files, whose paths belong to one machine."""
    tables = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)\n(.+\n)*\n", re.M)
    texts = {name: tables.sub("", text) for name, text in texts.items()}
    SAVED.write_text(json.dumps(texts, indent=1) + "\n")
