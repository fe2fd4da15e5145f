"""Features: the hidden states of a model as vectors of tokens or of texts (arXiv:1810.04805, section 5.3).

N vectors, T texts, B batch, L length, D width times the number of chosen layers.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.errors import ScopeParamNotFoundError

from bert_jax.errors import BadInput, log
from bert_jax.inference.batches import run_texts
from bert_jax.layers import pooling
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.runs import open_run

# The vectors of a text. none: one of each token, also of [CLS] and [SEP] or [END]. See pooling.py for the others.
POOLS = ("none", *pooling.POOLS)


class States(nn.Module):
    """A network whose output are the states of some layers, one after the other."""

    network: nn.Module
    layers: tuple[int, ...]  # 0: the embeddings
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
    network = getattr(model.objective.module, models.NETWORK, None)
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


def encode(model, texts: list[str], layers: str, pool: str) -> tuple:
    """Returns what `compute` does, and the number of texts that are cut to the positions that training has reached;
    prints it.

    layers: see `choose`.
    """
    if pool not in POOLS:
        raise BadInput(f"--pool {pool}: expected one of {', '.join(POOLS)}")
    count = network_of(model).layers + 1
    numbers = choose(layers, count, pool)
    room = open_run.trained_positions(model) - model.frame.size()
    ids = model.tokenizer.encode(texts)
    truncated = sum(len(text) > room for text in ids)
    if truncated:
        log(f"warning: {truncated} lines are cut to {room} tokens, as in training")
    return *compute(model, [text[:room] for text in ids], numbers, pool), truncated


def compute(model, texts: list[list[int]], layers: list[int], pool: str) -> tuple:
    """Returns float32[N, D], the vectors of the texts in their order, and int64[T], where those of each text end.

    model: its config, params and vocabulary.
    texts: at least one, each the ids of its tokens, which in the model's frame are at most `longest_row`.
    layers: numbers of states, 0 for the embeddings.
    pool: of POOLS.
    """
    network = network_of(model)
    pooling.check(network, pool, "--pool")
    frame = model.frame
    sizes = np.ones(len(texts), np.int64)
    if pool == "none":
        sizes = np.array([len(ids) + frame.size() for ids in texts])
    ends = np.cumsum(sizes)
    states = States(network, tuple(layers), pool)
    vectors = []  # one array, whose width the first batch tells

    def run(params, batch, numbers):
        rows = np.asarray(read(states, params, batch))
        if not vectors:
            vectors.append(np.empty((ends[-1], rows.shape[-1]), np.float32))
        for number, row in zip(numbers, rows, strict=True):
            size = sizes[number]
            vectors[0][ends[number] - size : ends[number]] = row[:size]
        return numbers

    try:
        run_texts(model, run, [[frame.wrap(ids)] for ids in texts])
    except ScopeParamNotFoundError:
        hint = "the model has no trained pooler; use first"
        raise BadInput(f"--pool {pool}: {hint}") from None
    return vectors[0], ends


@partial(jax.jit, static_argnums=0)
def read(states: States, params, batch):
    """Returns the vectors of a batch, as `States` does."""
    return base.from_module(states).outputs(params, batch)
