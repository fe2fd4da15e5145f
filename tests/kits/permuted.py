"""Small networks of examples/xlnet, and rows whose tokens are predicted in an order."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from kits import examples

from bert_jax.models import base as models
from bert_jax.tokenizers.special_tokens import Vocabulary

XLNET = "xlnet/config.py"
TRANSFORMER_XL = "xlnet/config_transformer_xl.py"
PIECES = 50
VOCABULARY = Vocabulary(PIECES, **dict(pad=0, unk=1, cls=2, sep=3, mask=4))
ROWS, LENGTH, PREDICTIONS = 3, 13, 5
KEY = jax.random.key(0)


def make_network(name: str, *changes):
    """Returns (network, batch, random parameters) of a small config without dropout."""
    config = examples.load(name, "model.dropout=0.0", "model.attention_dropout=0.0", *changes)
    network = models.make(config, PIECES)
    batch = make_batch()
    method = "predict" if name == XLNET else None
    params = jax.jit(partial(network.init, method=method))(KEY, batch)
    leaves, structure = jax.tree.flatten(params)
    draw = np.random.default_rng(1)
    values = [leaf + draw.normal(0, 0.1, leaf.shape).astype(np.float32) for leaf in leaves]
    return network, batch, structure.unflatten(values)


def make_batch() -> dict:
    """Returns rows of two texts, [SEP], and [CLS], with padding; five tokens of each are predicted in an order."""
    draw = np.random.default_rng(2)
    sizes = np.array([LENGTH, LENGTH - 2, LENGTH - 4])
    places = np.broadcast_to(np.arange(LENGTH), (ROWS, LENGTH))
    is_real = places < sizes[:, None]
    is_last = places == sizes[:, None] - 1
    positions = np.sort([draw.permutation(8)[:PREDICTIONS] for _ in range(ROWS)], axis=1)
    ranks = 1 + np.array([draw.permutation(LENGTH) for _ in range(ROWS)])
    is_special = is_last | (places == 3) | (places == sizes[:, None] - 2)
    is_predicted = (positions[..., None] == np.arange(LENGTH)).any(1) & ~is_special
    tokens = np.array([5 + draw.permutation(PIECES - 5)[:LENGTH] for _ in range(ROWS)])
    batch = {
        "tokens": np.where(is_real, tokens, 0),
        "segments": np.where(is_last, 2, (places > 3) & is_real),
        "positions": np.where(is_real, places, 0),
        "sequence_ids": is_real,
        "cls_positions": np.zeros((ROWS, 1)),
        "masked_positions": positions,
        "masked_targets": np.take_along_axis(tokens, positions, axis=1),
        "ranks": np.where(is_predicted | (is_special & is_real), ranks, 0),
        "rows": np.arange(ROWS),
    }
    batch = {name: np.asarray(array, np.int32) for name, array in batch.items()}
    used = np.take_along_axis(is_predicted, positions, axis=1)
    floats = {"masked_weights": used, "row_weights": np.ones(ROWS)}
    floats["next_weights"] = np.roll(is_real, -1, axis=1) & (places < LENGTH - 1)
    return batch | {name: array.astype(np.float32) for name, array in floats.items()}


def input_gradients(network, params, batch, method):
    """Returns the function (place) -> float32[L]: the largest gradient of a last state of the first row by the
    embedding of each of its tokens, which are all different."""

    @jax.jit
    @jax.grad
    def differentiate(params, place):
        return jnp.take(network.apply(params, batch, method=method)[0], place, axis=0).sum()

    def read(place):
        gradients = differentiate(params, place)["params"]["embedder"]["words"]
        return abs(np.asarray(gradients))[batch["tokens"][0]].max(-1)

    return read
