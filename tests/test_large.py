"""Large models have the parameters and bytes that arithmetic says, whole and on each device; nothing is allocated."""

import math
from functools import partial

import jax
import pytest

from bert_jax import config, optimizer, step
from bert_jax.data import batch
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import metrics
from bert_jax.tokenizers.special_tokens import Vocabulary

VOCABULARY = Vocabulary(30522, pad=0, unk=100, cls=101, sep=102, mask=103)
PADDED = 30592  # the next multiple of 128
# Layers and width; parameters without padding, with both heads.
SIZES = {"bert_large": (24, 1024), "bert_1b": (24, 2048)}
PARAMETERS = {"bert_large": 336_226_108, "bert_1b": 1_280_595_772}
full = partial(pytest.param, marks=pytest.mark.full)
NUMBERS = 12  # bytes a parameter: it and two moments in float32
COUNTERS = 24  # bytes: the step, the optimizer's count, and what step_guard.py remembers


def shapes_and_places(name: str, *mesh: str):
    resolved = config.load(name, ["dtype=float32", *mesh])
    objective = base.make(resolved, VOCABULARY)
    update = optimizer.make(resolved.optimizer, lambda step: 1e-4)
    example = batch.synthetic(1, 8, 1, VOCABULARY.size)
    shapes = jax.eval_shape(partial(step.init, objective, update, 1, example))
    return shapes, meshes.state(shapes, meshes.make_mesh(resolved.mesh))


def bytes_of(shapes, places=None) -> int:
    leaves = jax.tree.leaves(shapes)
    parts = [leaf.shape for leaf in leaves]
    if places is not None:
        parts = [p.shard_shape(s) for s, p in zip(parts, jax.tree.leaves(places), strict=True)]
    return sum(
        math.prod(part) * leaf.dtype.itemsize for part, leaf in zip(parts, leaves, strict=True)
    )


def count(layers: int, width: int, fsdp: int = 1, tensor: int = 1) -> int:
    """Parameters on a device, padding included."""
    both = fsdp * tensor
    kernels = layers * 12 * width**2 // both + 2 * width**2 // fsdp  # and of the heads
    vocabulary = (width + 1) * PADDED // both
    tables = (512 + 2) * width
    biases = layers * ((3 + 4) * width // tensor + 2 * width) + 2 * width
    norms = (2 * layers + 2) * 2 * width
    return kernels + vocabulary + tables + biases + norms + 2 * width + 2


@pytest.mark.parametrize("name", ["bert_large", full("bert_1b")])
def test_parameters_and_state(name):
    shapes, _ = shapes_and_places(name, "mesh.fsdp=8")
    assert metrics.count(shapes.params, VOCABULARY.size) == PARAMETERS[name]
    assert bytes_of(shapes.params) == 4 * count(*SIZES[name])
    assert bytes_of(shapes) - NUMBERS * count(*SIZES[name]) in range(COUNTERS + 1)


@pytest.mark.parametrize("fsdp, tensor", [full(8, 1), (4, 2)])
@pytest.mark.parametrize("name", ["bert_large", full("bert_1b")])
def test_state_on_a_device(name, fsdp, tensor):
    shapes, places = shapes_and_places(name, f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}")
    part = bytes_of(shapes, places)
    assert part - NUMBERS * count(*SIZES[name], fsdp, tensor) in range(COUNTERS + 1)
    assert part == pytest.approx(bytes_of(shapes) / (fsdp * tensor), rel=0.05)
    print(f"{name} fsdp={fsdp} tensor={tensor}: {part:,} of {bytes_of(shapes):,} bytes")
