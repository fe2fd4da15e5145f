"""benchmarks/plain.py: the plain step trains the same model on the same rows, so that cycles can be compared."""

import re

import jax
import numpy as np
import pytest
from kits.small import VOCABULARY, small_batch, small_config, small_objective, small_params

from benchmarks import plain
from bert_jax import build
from bert_jax.data import batch
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import metrics

UNDROPPED = "model.dropout=0.0", "model.attention_dropout=0.0"
NAMES = {  # theirs -> ours
    r"Block_(\d+)/MultiHeadDotProductAttention_0": r"encoder/blocks_\1/attention",
    r"Block_(\d+)/LayerNorm_0": r"encoder/blocks_\1/attention_norm",
    r"Block_(\d+)/LayerNorm_1": r"encoder/blocks_\1/feed_forward_norm",
    r"Block_(\d+)/Dense_0": r"encoder/blocks_\1/feed_forward/up",
    r"Block_(\d+)/Dense_1": r"encoder/blocks_\1/feed_forward/down",
    "Embed_0/embedding": "encoder/embedder/words",
    "Embed_1/embedding": "encoder/embedder/positions",
    "Embed_2/embedding": "encoder/embedder/segments",
    "LayerNorm_0": "encoder/embedder_norm",
    "LayerNorm_1": "mlm/norm",
    "Dense_0": "mlm/dense",
    "Dense_1": "pair",
    "Dense_2": "encoder/pooler",
    "bias": "mlm/bias",
}


def as_plain(ours: dict, shapes: dict) -> dict:
    """A tree of our parameters or gradients as that of the plain step, without the words that pad the vocabulary."""
    arrays = {meshes.path_name(path): leaf for path, leaf in jax.tree.leaves_with_path(ours)}

    def take(path, shape):
        path = meshes.path_name(path)
        theirs = next(pattern for pattern in NAMES if re.match(f"{pattern}(/|$)", path))
        array = arrays.pop(re.sub(f"^{theirs}", NAMES[theirs], path))
        return array[: VOCABULARY.size].reshape(shape.shape)

    taken = jax.tree.map_with_path(take, shapes)
    assert not arrays
    return taken


def made(form: str, *keys: str):
    """(initialize, step, the shapes of its state)."""
    initialize, step = plain.make(small_config(*keys), VOCABULARY.size, form)
    return initialize, step, jax.eval_shape(initialize)


@pytest.mark.parametrize("sequences", [1, 2])
def test_the_same_loss_and_gradients_as_ours(sequences):
    objective = small_objective(*UNDROPPED)
    rows = small_batch()
    if sequences > 1:
        rows = batch.synthetic(16, 32, 5, VOCABULARY.size, sequences=sequences)
    params = small_params(objective)

    def ours(params):
        return objective.loss(params, rows, objective.weights(rows), 0, train=True)[0]

    _, _, shapes = made("unrolled", *UNDROPPED)

    def theirs(params):
        key = {"dropout": jax.random.key(0)}
        return shapes.apply_fn({"params": params}, rows, rngs=key)

    expected, gradient = jax.jit(jax.value_and_grad(ours))(params)
    plain_params = as_plain(params, shapes.params)
    value, found = jax.jit(jax.value_and_grad(theirs))(plain_params)
    assert value == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        found,
        as_plain(gradient, shapes.params),
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(plain_params)) == metrics.count(
        params, VOCABULARY.size
    )


def test_a_scanned_step_is_an_unrolled_one():
    initialize, step, _ = made("unrolled", *UNDROPPED)
    state, rows = initialize(), small_batch()
    blocks = [state.params[f"Block_{number}"] for number in range(2)]
    rest = {key: value for key, value in state.params.items() if not key.startswith("Block_")}
    stacked = rest | {"ScanBlock_0": jax.tree.map(lambda *leaves: np.stack(leaves), *blocks)}
    _, scanned, shapes = made("scanned", *UNDROPPED)
    fresh = shapes.replace(step=0, params=stacked, opt_state=shapes.tx.init(stacked))
    after, loss = jax.jit(step)(state, rows)
    other, same = jax.jit(scanned)(fresh, rows)
    assert same == pytest.approx(float(loss), rel=1e-6)
    for key in rest:
        jax.tree.map(np.testing.assert_allclose, other.params[key], after.params[key])


@pytest.mark.parametrize("key", ["dropout", "attention_dropout"])
def test_dropout_is_drawn_anew_at_every_step(key):
    other = {"dropout", "attention_dropout"} - {key}
    initialize, step, _ = made("scanned", f"model.{other.pop()}=0.0")
    step, state, rows = jax.jit(step), jax.jit(initialize)(), small_batch()
    state, first = step(state, rows)  # at the rate 0 of a warm-up's first step
    assert first != step(state, rows)[1]


def test_it_learns_a_batch():
    initialize, step, _ = made("unrolled", *UNDROPPED, "optimizer.learning_rate=0.02")
    step, state, rows = jax.jit(step), jax.jit(initialize)(), small_batch()
    losses = []
    for _ in range(10):
        state, loss = step(state, rows)
        losses.append(float(loss))
    assert losses[0] == losses[1] > losses[-1] + 1  # the first step's rate is 0


def test_it_is_lowered_for_rows_split_over_a_mesh():
    settings = small_config()
    phase = build.configs.phases(settings)[0]
    mesh = build.make_mesh(settings, [phase])
    compiled = plain.lower(settings, mesh, phase, VOCABULARY.size, "scanned").compile()
    (state, rows), _ = compiled.input_shardings
    assert {leaf.is_fully_replicated for leaf in jax.tree.leaves(state)} == {True}
    assert not rows["tokens"].is_fully_replicated and mesh.size > 1
