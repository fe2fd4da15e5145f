"""Features: the hidden states of a model as vectors of tokens or of texts (arXiv:1810.04805, section 5.3).

N vectors, T texts, B batch, L length, D width times the number of chosen layers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.errors import BadInput
from bert_jax.inference.fill_mask import ROWS, make_batch
from bert_jax.layers import heads
from bert_jax.objectives import base

# The vectors of a text. none: one of each token, [CLS] and [SEP] included. cls: that of [CLS], without BERT's pooler.
# mean, max: of the tokens' vectors, [CLS] and [SEP] included.
POOLS = ("none", "cls", "mean", "max")
MULTIPLE = 32  # of the lengths of batches, so that there are few programs


class States(nn.Module):
    """An encoder whose output are the states of some layers, one after the other."""

    encoder: nn.Module
    layers: list[int]  # 0: the embeddings
    pool: str  # of POOLS

    def __call__(self, batch, keys):
        """Returns [B, L, D], or [B, 1, D] with pooling."""
        states = self.encoder.states(batch, keys)
        x = jnp.concatenate([states[number] for number in self.layers], axis=-1)
        if self.pool == "none":
            return x
        return heads.pool(self.encoder, x, batch, "first" if self.pool == "cls" else self.pool)


def encoder_of(model) -> nn.Module:
    """Returns the encoder of a loaded model. Raises BadInput if it has no hidden states of layers."""
    fields = getattr(base.module_of(model.config), "ENCODER", {})
    encoder = base.make_encoder(model.config, model.vocabulary, **fields)
    if not hasattr(encoder, "states"):
        raise BadInput(f"model.name={model.config.model.name}: has no states of layers")
    return encoder


def choose(text: str, count: int) -> list[int]:
    """Returns the numbers of the states that an index or a slice in Python's syntax selects.

    text: the value of the option --layers. count: of the states. Raises BadInput if there is no such state."""
    try:
        parts = [int(part) if part else None for part in text.split(":")]
        numbers = range(count)[slice(*parts) if len(parts) > 1 else parts[0]]
    except (ValueError, TypeError, IndexError):
        numbers = []
    found = [numbers] if isinstance(numbers, int) else [*numbers]
    if not found:
        raise BadInput(f"--layers {text}: expected an index or a slice of {count} states")
    return found


def compute(model, texts: list[list[int]], layers: list[int], pool: str) -> tuple:
    """Returns float32[N, D], the vectors of the texts in their order, and int64[T], where those of each text end.

    model: its config, objective, params and vocabulary. texts: at least one, each the ids of its tokens, which with
    [CLS] and [SEP] are at most config.model.max_length. layers: numbers of states, 0 for the embeddings.
    """
    encoder = encoder_of(model)
    run = jax.jit(base.from_module(States(encoder, layers, pool), None, None).outputs)
    params = jax.device_put({"encoder": model.params["encoder"]})
    lengths = np.array([len(ids) + 2 for ids in texts])
    sizes = lengths if pool == "none" else np.ones_like(lengths)
    ends, order = np.cumsum(sizes), np.argsort(-lengths, kind="stable")
    vectors = np.empty((ends[-1], len(layers) * encoder.width), np.float32)
    for start in range(0, len(order), ROWS):
        numbers = order[start : start + ROWS]
        length = -(-lengths[numbers[0]] // MULTIPLE) * MULTIPLE  # the first text is the longest
        length = min(length, model.config.model.max_length)
        part = [texts[number] for number in numbers]
        found = np.asarray(run(params, make_batch(part, ROWS, length, 0, model.vocabulary)))
        for number, states in zip(numbers, found, strict=False):  # the last rows may have no text
            vectors[ends[number] - sizes[number] : ends[number]] = states[: sizes[number]]
    return vectors, ends
