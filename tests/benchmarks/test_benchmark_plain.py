"""benchmarks/plain.py: the plain step trains the same model on the same rows, so their cycles are comparable."""

import functools
import re

import jax
import numpy as np
import pytest
from kits import small
from kits.small import VOCABULARY, small_config, small_objective, small_params

from benchmarks import plain
from bert_jax.convert.names import by_path
from bert_jax.models import counts
from bert_jax.parallel import mesh as meshes

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
    """Converts a tree of our parameters or gradients to that of the plain step, without vocabulary padding."""
    arrays = by_path(ours)

    def take(path, shape):
        path = meshes.path_name(path)
        theirs = next(pattern for pattern in NAMES if re.match(f"{pattern}(/|$)", path))
        array = arrays.pop(re.sub(f"^{theirs}", NAMES[theirs], path))
        return array[: VOCABULARY.size].reshape(shape.shape)

    taken = jax.tree.map_with_path(take, shapes)
    assert not arrays
    return taken


@pytest.mark.slow
def test_the_plain_step_has_our_loss_and_gradients():
    """On rows of two sequences, half of them padded."""
    objective = small_objective(*UNDROPPED)
    rows = small.synthetic(16, 32, 5, VOCABULARY.size, sequences=2)
    rows["sequence_ids"][:8, 28:] = 0
    rows["masked_weights"] *= (
        np.take_along_axis(*(rows[n] for n in ("sequence_ids", "masked_positions")), axis=1) > 0
    )
    params = small_params(objective)

    initialize, _ = plain.make(small_config(*UNDROPPED), VOCABULARY.size, "unrolled")
    shapes = jax.eval_shape(initialize)

    def theirs(params):
        key = {"dropout": jax.random.key(0)}
        return shapes.apply_fn({"params": params}, rows, rngs=key)

    expected, gradient = jax.jit(jax.value_and_grad(small.loss_of(objective)))(params, rows)
    plain_params = as_plain(params, shapes.params)
    value, actual = jax.jit(jax.value_and_grad(theirs))(plain_params)
    assert value == pytest.approx(float(expected), rel=1e-5)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5)
    jax.tree.map(close, actual, as_plain(gradient, shapes.params))
    size = sum(leaf.size for leaf in jax.tree.leaves(plain_params))
    assert size == counts.count(params, VOCABULARY.size)
