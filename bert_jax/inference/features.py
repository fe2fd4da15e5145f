"""Features: the hidden states of a model as vectors of tokens or of texts (arXiv:1810.04805, section 5.3).

N vectors, T texts, B batch, L length, D width times the number of chosen layers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.errors import ScopeParamNotFoundError

from bert_jax.config import longest_row
from bert_jax.errors import BadInput
from bert_jax.inference.batches import ROWS, make_batch, padded_length
from bert_jax.layers import pooling
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import frame_of

# The vectors of a text. none: one of each token, also of [CLS] and [SEP] or [END]. See pooling.py for the others.
POOLS = ("none", *pooling.POOLS)


class States(nn.Module):
    """A network whose output are the states of some layers, one after the other."""

    network: nn.Module
    layers: list[int]  # 0: the embeddings
    pool: str  # of POOLS

    def __call__(self, batch, keys):
        """Returns [B, L, D], or with pooling [B, 1, D]; [B, 1, 3 D] for concat."""
        states = self.network.states(batch, keys)
        x = jnp.concatenate([states[number] for number in self.layers], axis=-1)
        if self.pool == "none":
            return x
        return pooling.pool(self.network, x, batch, self.pool)


def network_of(model) -> nn.Module:
    """Returns the network of a loaded model. Raises BadInput if it has no hidden states of layers."""
    module = base.make(model.config, model.vocabulary, sequences=1).module
    network = getattr(module, models.NETWORK, None)
    if not hasattr(network, "states"):
        raise BadInput(f"model.name={model.config.model.name}: has no states of layers")
    return network


def choose(text: str, count: int, pool: str) -> list[int]:
    """Returns the numbers of the states that an index or a slice in Python's syntax selects.

    text: the value of the option --layers. count: of the states. pool: of POOLS. Raises BadInput if there is no such
    state, or if the network's summary does not read it.
    """
    numbers = range(count)
    try:
        parts = [int(part) if part else None for part in text.split(":")]
        if len(parts) == 1:
            numbers = [numbers[parts[0]]]
        else:
            numbers = numbers[slice(*parts)]
    except (ValueError, TypeError, IndexError):
        numbers = ()
    if not numbers:
        raise BadInput(f"--layers {text}: expected an index or a slice of {count} states")
    if pool == "summary" and [*numbers] != [count - 1]:
        raise BadInput("--pool summary: reads the last states alone; use first")
    return [*numbers]


def compute(model, texts: list[list[int]], layers: list[int], pool: str) -> tuple:
    """Returns float32[N, D], the vectors of the texts in their order, and int64[T], where those of each text end.

    model: its config, params and vocabulary.
    texts: at least one, each the ids of its tokens, which with [CLS] and the end of a row are at most `longest_row`.
        They have those of the two that the task's texts and the vocabulary have.
    layers: numbers of states, 0 for the embeddings.
    pool: of POOLS.
    """
    network = network_of(model)
    pooling.check(network, pool, "--pool")
    objective = base.from_module(States(network, layers, pool), None, None)
    run = jax.jit(objective.outputs)
    params = jax.device_put({models.NETWORK: model.params[models.NETWORK]})
    vocabulary = model.vocabulary
    frame = frame_of(model.config).ids(vocabulary._asdict())
    vocabulary = vocabulary._replace(cls=(*frame.begin, None)[0], sep=(*frame.end, None)[0])
    lengths = np.array([len(ids) + frame.size() for ids in texts])
    sizes = lengths if pool == "none" else np.ones_like(lengths)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    vectors = None
    order = np.argsort(-lengths, kind="stable")
    for first in range(0, len(order), ROWS):
        numbers = order[first : first + ROWS]
        longest = lengths[numbers[0]]
        length = padded_length(longest, longest_row(model.config))
        batch = make_batch([texts[n] for n in numbers], ROWS, length, 0, vocabulary)
        try:
            states = np.asarray(run(params, batch))
        except ScopeParamNotFoundError:
            hint = "the model has no trained pooler; use first"
            raise BadInput(f"--pool {pool}: {hint}") from None
        if vectors is None:
            vectors = np.empty((ends[-1], states.shape[-1]), np.float32)
        for number, rows in zip(numbers, states, strict=False):  # the last rows may have no text
            vectors[starts[number] : ends[number]] = rows[: sizes[number]]
    return vectors, ends
