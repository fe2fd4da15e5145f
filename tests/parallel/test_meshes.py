"""The compiled training step on many meshes: the same losses, each device its share, and no array where it need not be.

The sizes are such that the logits are by far the largest array, and no two kinds of arrays have the same shape.
"""

import math
from functools import cache

import jax
import numpy as np
import pytest
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import build
from bert_jax.data import batch
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import hlo
from bert_jax.runs import metrics

pytestmark = pytest.mark.slow  # each compiles programs for eight devices

ROWS, LENGTH, PREDICTIONS, WIDTH, HIDDEN, PIECES = 16, 24, 20, 32, 96, 1024
SIZES = [
    f"phases.main.batch={ROWS}",
    f"phases.main.length={LENGTH}",
    f"phases.main.predictions={PREDICTIONS}",
    f"model.positions={LENGTH}",
    f"model.width={WIDTH}",
    f"model.feed_forward={HIDDEN}",
    "model.heads=8",
]
MESHES = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2), (2, 4, 1), (4, 1, 2), (1, 2, 4)]
TPU_MESHES = [(8, 1, 1), (1, 1, 8), (2, 2, 2), (2, 4, 1)]  # a few: these programs cannot be kept


def on_both(*shapes):
    """Parametrizes by `shape` and `platform`."""
    cases = [(shape, "cpu") for shape in shapes]
    cases += [
        pytest.param(shape, "tpu", marks=needs_libtpu) for shape in shapes if shape in TPU_MESHES
    ]
    return pytest.mark.parametrize(("shape", "platform"), cases)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Compiled programs are large."""
    yield
    trainer.cache_clear()


@cache
def trainer(shape, platform="cpu"):
    names = [f"mesh.{name}={size}" for name, size in zip(meshes.AXES, shape, strict=True)]
    places = jax.devices()[: math.prod(shape)] if platform == "cpu" else devices("v5e:2x4")
    config = small_config(*SIZES, *names)
    mesh = meshes.make_mesh(config.mesh, places)
    vocabulary = VOCABULARY._replace(size=PIECES)
    if platform == "cpu":
        return build.build(config, mesh, vocabulary)
    with compiling():
        return build.build(config, mesh, vocabulary)


def state_bytes(made) -> int:
    """Of one device, by the shapes and places of its arrays."""
    leaves = zip(jax.tree.leaves(made.shapes), jax.tree.leaves(made.places), strict=True)
    return sum(math.prod(p.shard_shape(s.shape)) * s.dtype.itemsize for s, p in leaves)


def parts(made) -> list[tuple[int, int]]:
    """Of each parameter the elements of a device's part, and of that part put together over fsdp."""
    pairs = zip(
        jax.tree.leaves(made.shapes.params), jax.tree.leaves(made.places.params), strict=True
    )
    sizes = [(math.prod(place.shard_shape(leaf.shape)), str(place.spec)) for leaf, place in pairs]
    fsdp = made.mesh.shape["fsdp"]
    return [(size, size * fsdp if "fsdp" in spec else size) for size, spec in sizes]


def losses(made, steps: int) -> list[float]:
    state, found = made.initialize(), []
    for number in range(steps):
        arrays = batch.synthetic(ROWS, LENGTH, PREDICTIONS, PIECES, seed=number)
        rows = meshes.to_devices(made.mesh, arrays, np.arange(ROWS), ROWS)
        state, values, _ = made.train["main"](state, rows)
        found.append(metrics.means(values)["loss"])
    return found


@pytest.mark.parametrize("shape", MESHES)
def test_twenty_steps_with_dropout_have_the_losses_of_one_device(shape):
    expected = one_device()
    found = losses(trainer(shape), 20)
    print(shape, "largest relative difference", np.max(np.abs(np.divide(found, expected) - 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(np.round(expected, 3))) > 10


@cache
def one_device() -> list[float]:
    return losses(trainer((1, 1, 1)), 20)


@on_both(*MESHES)
def test_no_device_has_more_than_its_share_of_the_logits(shape, platform):
    """They are by far the largest arrays: by rows over data and fsdp, by the vocabulary over tensor."""
    text = trainer(shape, platform).train["main"].as_text()
    sizes = {math.prod(array.shape) for i in hlo.instructions(text) for array in i.results}
    assert max(sizes) == ROWS * PREDICTIONS * PIECES // 8


@pytest.mark.parametrize("shape", MESHES)
def test_a_program_takes_the_parts_of_the_state_and_gives_them_back(shape):
    made = trainer(shape)
    sizes = hlo.memory(made.train["main"])
    shapes = batch.shapes(ROWS // (shape[0] * shape[1]), LENGTH, PREDICTIONS)
    rows = sum(math.prod(s.shape) * s.dtype.itemsize for s in shapes.values())
    assert sizes.arguments == state_bytes(made) + rows
    assert sizes.shared == state_bytes(made)  # donated: a second state is never held


@on_both((8, 1, 1))
def test_data_alone_sums_each_gradient_and_nothing_else(shape, platform):
    made = trainer(shape, platform)
    found = hlo.collectives(made.train["main"].as_text(), made.mesh)
    assert {(c.kind, c.axes) for c in found} == {("all-reduce", ("data",))}
    parameters = 4 * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(made.shapes.params))
    table = 4 * PIECES * WIDTH  # the CPU sums its two gradients one by one
    assert parameters <= sum(c.bytes for c in found) <= parameters + table + 1000


@on_both((1, 8, 1), (2, 4, 1), (2, 2, 2))
def test_fsdp_gathers_parameters_and_sums_gradients_alone(shape, platform):
    """Nothing of the size of activations, and no state after the update."""
    made = trainer(shape, platform)
    found = hlo.collectives(made.train["main"].as_text(), made.mesh)
    found = [c for c in found if c.axes != ("tensor",) and c.bytes > 1000]
    sizes = parts(made)
    # What a device may gather of a parameter, or sum of its gradient.
    assert {math.prod(c.shape) for c in found} <= {size for pair in sizes for size in pair}
    gathers = [c for c in found if c.kind == "all-gather"]
    assert gathers and all("jvp" in c.name for c in gathers)
    part, whole = (4 * sum(column) for column in zip(*sizes, strict=True))
    # Each once in the forward pass and once in the backward pass, at most.
    assert sum(c.bytes for c in gathers) <= 2 * whole
    sums = [c for c in found if c.kind in ("all-reduce", "reduce-scatter")]
    over_fsdp, over_data = (sum(c.bytes for c in sums if a in c.axes) for a in ("fsdp", "data"))
    if platform == "tpu":
        # Each gradient once, and over `data` its parts alone, and what every device has whole.
        assert over_fsdp <= whole and over_data <= part
    else:
        # The CPU's compiler sums the table's two gradients one by one, and kernels over `data` before they are parted.
        table = 4 * PIECES * WIDTH / shape[2]
        assert max(over_fsdp, over_data) <= whole + table


@on_both((1, 8, 1), (2, 4, 1))
def test_the_optimizer_works_on_its_parts(shape, platform):
    text = trainer(shape, platform).train["main"].as_text()
    roots = [i.results[0].shape for i in hlo.instructions(text) if i.opcode in ("sqrt", "rsqrt")]
    parts = {(PIECES // shape[1], WIDTH), (WIDTH // shape[1], HIDDEN), (HIDDEN, WIDTH // shape[1])}
    assert parts <= set(roots) and not {(PIECES, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)} & set(
        roots
    )


@on_both((1, 1, 8), (2, 2, 2), (4, 1, 2), (1, 2, 4))
def test_tensor_sums_vectors_and_never_logits(shape, platform):
    made = trainer(shape, platform)
    found = hlo.collectives(made.train["main"].as_text(), made.mesh)
    rows = ROWS // (shape[0] * shape[1])
    vectors = {(rows, LENGTH, WIDTH), (rows, PREDICTIONS, WIDTH), (rows, 1, WIDTH)}
    over = [c for c in found if c.axes == ("tensor",) and c.bytes > 4 * rows * PREDICTIONS]
    if shape[1] > 1:  # kernels of the heads, whose products may be shared out
        over = [c for c in over if c.shape != (WIDTH, WIDTH)]
    assert over and {c.kind for c in over} == {"all-reduce"}
    assert {c.shape for c in over} <= vectors
    # Of the loss, one number a prediction: the maximum, the sum of exponentials, the chosen logit.
    numbers = [c for c in found if c.axes == ("tensor",) and c.shape[:2] == (rows, PREDICTIONS)]
    assert len([c for c in numbers if math.prod(c.shape) == rows * PREDICTIONS]) >= 3
