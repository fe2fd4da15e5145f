"""The compiled training step on many meshes: the same losses, only the expected collectives, no larger arrays.

With these sizes the logits are by far the largest array, and no two types of arrays have the same shape.
"""

import math
from functools import cache

import jax
import numpy as np
import pytest
from kits import pairs_of_texts, programs, small
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, mesh_keys, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import hlo
from bert_jax.runs import metrics
from bert_jax.tasks import base as tasks
from bert_jax.tasks.text import mlm_batch

pytestmark = pytest.mark.slow  # each compiles programs for eight devices

ROWS, LENGTH, PREDICTIONS, WIDTH, HIDDEN, PIECES = 16, 24, 20, 32, 96, 1024
SIZES = f"""
    phases.main.batch={ROWS} phases.main.length={LENGTH} model.max_length={LENGTH}
    model.width={WIDTH} model.feed_forward={HIDDEN} model.heads=8
"""
KEYS = {
    "bert": f"phases.main.max_predictions={PREDICTIONS}",
    "albert": f"""
        model.name=albert model.embedding_width=16 model.dropout=0.1 model.attention_dropout=0.1
        task.pair_task=sop phases.main.max_predictions={PREDICTIONS}
    """,
    "electra": f"""
        model.name=electra model.embedding_width=16 objective.name=replaced_tokens objective.generator=2
        model.heads=16 task.pair_task=none phases.main.max_predictions={PREDICTIONS}
    """,
    "transformer": f"""
        model.name=transformer model.layers=1 model.decoder_layers=1 model.attention_dropout=0.1
        model.hidden_dropout=0.1 objective.name=translation
        task.name=translation task.max_pieces={LENGTH - 2}
    """,
}
TABLE = 4 * PIECES * WIDTH  # bytes
EVERYDAY = [(8, 1, 1), (2, 2, 2)]
MESHES = [*EVERYDAY, (1, 8, 1), (1, 1, 8), (2, 4, 1), (4, 1, 2), (1, 2, 4)]
TPU_MESHES = [(8, 1, 1), (1, 1, 8), (2, 2, 2), (2, 4, 1)]  # a few: their programs are not cached


def on_meshes(*shapes, platforms=("cpu", "tpu"), everyday=EVERYDAY):
    """Parametrizes a test by `shape` and `platform`."""
    cases = []
    for shape in shapes:
        marks = [] if shape in everyday else [pytest.mark.full]
        cases.append(pytest.param(shape, "cpu", marks=marks))
        if shape in TPU_MESHES and "tpu" in platforms:
            cases.append(pytest.param(shape, "tpu", marks=[needs_libtpu, pytest.mark.full]))
    return pytest.mark.parametrize("shape, platform", cases)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Drops the compiled programs at the end, because they are large."""
    yield
    trainer.cache_clear()


@cache
def trainer(shape, platform="cpu", model="bert"):
    config = small_config(*f"{SIZES} {KEYS[model]}".split(), *mesh_keys(shape))
    vocabulary = VOCABULARY._replace(size=PIECES)
    if platform == "cpu":
        mesh = meshes.make_mesh(config, jax.devices()[: math.prod(shape)])
        return build.build(config, mesh, vocabulary)
    with compiling():
        return build.build(config, meshes.make_mesh(config, devices("v5e:2x4")), vocabulary)


def collectives(shape, platform):
    made = trainer(shape, platform)
    return programs.collectives(made.train["main"].as_text(), made.mesh)


def parts(made) -> list[tuple[int, int]]:
    """Returns for each parameter the elements of a device's shard, and of that shard gathered over fsdp."""
    leaves = jax.tree.leaves(made.shapes.params), jax.tree.leaves(made.shardings.params)
    sizes = [(math.prod(p.shard_shape(s.shape)), str(p.spec)) for s, p in zip(*leaves, strict=True)]
    fsdp = made.mesh.shape["fsdp"]
    return [(size, size * fsdp if "fsdp" in spec else size) for size, spec in sizes]


def draw_batch(model: str, number: int) -> dict:
    if model != "transformer":
        return small.synthetic(ROWS, LENGTH, PREDICTIONS, PIECES, seed=number)
    config = small_config(*f"{SIZES} {KEYS[model]}".split())
    (phase,) = configs.phases(config)
    shapes = tasks.make(config).shapes(phase, ROWS)
    return pairs_of_texts.draw_batch(shapes, PIECES, number)


@cache
def losses(shape, model) -> list[float]:
    made, found = trainer(shape, model=model), []
    state = made.initialize()
    for number in range(20):
        arrays = draw_batch(model, number)
        rows = meshes.to_devices(made.mesh, arrays, np.arange(ROWS), ROWS)
        state, values, _ = made.train["main"](state, rows)
        found.append(metrics.means(values)["loss"])
    return found


FULL = [
    pytest.param(model, marks=pytest.mark.full) for model in ("albert", "electra", "transformer")
]


@pytest.mark.parametrize("model", ["bert", *FULL])
@on_meshes(*MESHES, platforms=["cpu"], everyday=[(8, 1, 1)])
def test_twenty_steps_with_dropout_have_the_losses_of_one_device(shape, platform, model):
    expected = losses((1, 1, 1), model)
    np.testing.assert_allclose(losses(shape, model), expected, rtol=1e-5)
    assert len(set(np.round(expected, 3))) > 10


@on_meshes(*MESHES, everyday=[(2, 2, 2)])
def test_no_device_has_more_than_its_shard_of_the_logits(shape, platform):
    """They are sharded by rows over data and fsdp, and by the vocabulary over tensor."""
    text = trainer(shape, platform).train["main"].as_text()
    every = (one for instructions in hlo.computations(text)[0].values() for one in instructions)
    sizes = {math.prod(array.shape) for one in every for array in hlo.arrays(one.results)}
    assert max(sizes) == ROWS * PREDICTIONS * PIECES // 8


@on_meshes(*MESHES, platforms=["cpu"])
def test_a_program_takes_the_shards_of_the_state_and_donates_them(shape, platform):
    made = trainer(shape)
    sizes = made.train["main"].memory_analysis()
    leaves = zip(jax.tree.leaves(made.shapes), jax.tree.leaves(made.shardings), strict=True)
    state = sum(math.prod(p.shard_shape(s.shape)) * s.dtype.itemsize for s, p in leaves)
    shapes = mlm_batch.shapes(ROWS // (shape[0] * shape[1]), LENGTH, PREDICTIONS)
    del shapes["row_weights"]  # masked LM reads the weights that follow from them
    rows = sum(math.prod(s.shape) * s.dtype.itemsize for s in shapes.values())
    assert sizes.argument_size_in_bytes == state + rows
    assert sizes.alias_size_in_bytes == state  # donated, so that there is never a second state


@on_meshes((1, 8, 1), (2, 4, 1), (2, 2, 2))
def test_fsdp_only_gathers_parameters_and_reduces_gradients(shape, platform):
    """It communicates no activations, and no state after the update."""
    found = collectives(shape, platform)
    gathers = [text for c, text in found if c.kind == "all-gather" and c.axes != ("tensor",)]
    assert gathers and all("jvp" in text for text in gathers)
    found = [c for c, _ in found if c.axes != ("tensor",) and c.array.bytes > 1000]
    sizes = parts(trainer(shape, platform))
    # A device may gather a parameter or reduce a gradient: a shard, or the shard gathered over fsdp.
    assert {math.prod(c.array.shape) for c in found} <= {size for pair in sizes for size in pair}
    part, whole = (4 * sum(column) for column in zip(*sizes, strict=True))
    # At most once in the forward pass and once in the backward pass.
    assert sum(c.array.bytes for c in found if c.kind == "all-gather") <= 2 * whole
    sums = [c for c in found if c.kind in ("all-reduce", "reduce-scatter")]
    axes = "fsdp", "data"
    over_fsdp, over_data = (sum(c.array.bytes for c in sums if a in c.axes) for a in axes)
    if platform == "tpu":
        # Each gradient once; over `data` only shards and replicated parameters.
        assert over_fsdp <= whole and over_data <= part
    else:
        # The CPU compiler reduces the table's two gradients separately, and kernels over `data` before it scatters.
        assert max(over_fsdp, over_data) <= whole + TABLE / shape[2]


@on_meshes((1, 1, 8), (2, 2, 2), (4, 1, 2), (1, 2, 4))
def test_tensor_reduces_vectors_and_never_logits(shape, platform):
    found = [c for c, _ in collectives(shape, platform) if c.axes == ("tensor",)]
    rows = ROWS // (shape[0] * shape[1])
    vectors = {(rows, LENGTH, WIDTH), (rows, PREDICTIONS, WIDTH), (rows, 1, WIDTH)}
    over = [c for c in found if c.array.bytes > 4 * rows * PREDICTIONS]
    if shape[1] > 1:  # kernels of the heads, whose matmuls the compiler may partition
        over = [c for c in over if c.array.shape != (WIDTH, WIDTH)]
    assert over and {c.kind for c in over} == {"all-reduce"}
    assert {c.array.shape for c in over} <= vectors
    # For the loss, one number per prediction: the maximum, the sum of exponentials, the target's logit.
    shapes = [c.array.shape for c in found if c.array.shape[:2] == (rows, PREDICTIONS)]
    assert len([shape for shape in shapes if math.prod(shape) == rows * PREDICTIONS]) >= 3
