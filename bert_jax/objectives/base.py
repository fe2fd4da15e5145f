"""The one abstraction: what is trained, as four pure functions; and the parts that objectives share.

B batch, P predictions a row, S packed sequences a row, D width, V padded vocabulary.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.tokenizers.special_tokens import Vocabulary


class Objective(NamedTuple):
    """A trainable thing. The step and the loop know nothing else of it.

    The scalar of `loss` is the sum over terms of sum / totals[term], with totals from `weights` of the whole global
    batch: so the scalars and gradients of micro-batches add up to exactly the large batch's. Each term is also a
    metric, `{term}_loss`.
    """

    init: Callable  # (rng, batch) -> params
    weights: Callable  # (batch) -> {term: total weight}, before any forward pass
    loss: Callable  # (params, batch, totals, key, *, train) -> (scalar, {name: (sum, weight)})
    outputs: Callable  # (params, batch) -> {name: array[B, ...]}


def make(config, vocabulary: Vocabulary) -> Objective:
    """The objective that the config names. The file name is the registry."""
    module = importlib.import_module(f"bert_jax.objectives.{config.objective.name}")
    return module.make(config, vocabulary)


def make_encoder(config, vocabulary: Vocabulary) -> nn.Module:
    module = importlib.import_module(f"bert_jax.models.{config.model.name}")
    return module.make(config, vocabulary.size)


def from_module(module: nn.Module, weights: Callable, terms: Callable) -> Objective:
    """An objective from a Flax module, (batch, keys) -> outputs, and two functions of what goes in and comes out.

    The module gets keys uint32[B], one a row, while training, and None otherwise; it hands them to its encoder, which
    folds small counters into them for its layers' dropout. weights: (batch) -> {term: total}; terms: (outputs, batch)
    -> {name: (sum, weight)}, with `{term}_loss` for every term of weights. The only place that calls Flax.
    """

    def init(rng, batch):
        return module.init(rng, jax.tree.map(jnp.asarray, batch), None)["params"]

    def loss(params, batch, totals, key, *, train):
        keys = None
        if train:
            place = prng.fold(key, jnp.uint32(prng.PURPOSE["dropout"]))
            keys = prng.fold(place, batch["rows"].astype(jnp.uint32))
        metrics = terms(module.apply({"params": params}, batch, keys), batch)
        scalar = sum(metrics[f"{term}_loss"][0] / total for term, total in totals.items())
        return scalar, metrics

    def outputs(params, batch):
        return module.apply({"params": params}, batch, None)

    return Objective(init, weights, loss, outputs)
