"""The one abstraction: a training objective as four pure functions; and the parts that objectives share.

The file of an objective has `make(config, vocabulary) -> Objective`, and may also have:

    reference_losses  (vocabulary size, unigram entropy in nats) -> the line of the log with losses to compare with
    HEADS             {output: the parts of the parameters that it needs beside the encoder}
    VOCABULARY_LOGITS the outputs that are logits over the vocabulary

B batch, P predictions per row, S packed sequences per row, D width, V padded vocabulary.
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
    """A model with its loss. The step and the loop use nothing but these four functions.

    The scalar of `loss` is the sum over terms of sum / totals[term]. The totals come from `weights` of the whole global
    batch, so the scalars and gradients of micro-batches add up to exactly those of the large batch. Each term is also
    a metric, `{term}_loss`.
    """

    init: Callable  # (rng, batch) -> params
    weights: Callable  # (batch) -> {term: total weight}, before any forward pass
    loss: Callable  # (params, batch, totals, key, *, train) -> (scalar, {name: (sum, weight)})
    outputs: Callable  # (params, batch) -> {name: array[B, ...]}


def make(config, vocabulary: Vocabulary) -> Objective:
    """Returns the objective that `config.objective.name` names. The file name is the registry."""
    return module_of(config).make(config, vocabulary)


def module_of(config):
    """Returns the module that `config.objective.name` names."""
    return importlib.import_module(f"bert_jax.objectives.{config.objective.name}")


def reference_losses(config, vocabulary_size: int, unigram_entropy: float) -> str:
    """Returns the `reference_losses` of the objective's file; '' if it has none."""
    describe = getattr(module_of(config), "reference_losses", None)
    return describe(vocabulary_size, unigram_entropy) if describe else ""


def make_encoder(config, vocabulary: Vocabulary) -> nn.Module:
    """Returns the encoder that `config.model.name` names. The file name is the registry."""
    module = importlib.import_module(f"bert_jax.models.{config.model.name}")
    return module.make(config, vocabulary.size)


def from_module(module: nn.Module, weights: Callable, terms: Callable) -> Objective:
    """Returns the objective of a Flax module and two functions. Only this function calls Flax's `init` and `apply`.

    module: (batch, keys) -> outputs. While training, keys is uint32[B], one per row: the module passes them to its
    encoder, which derives a key for each dropout. Otherwise keys is None.
    weights: (batch) -> {term: total weight}.
    terms: (outputs, batch) -> {name: (sum, weight)}, with `{term}_loss` for every term of `weights`.
    """

    def init(rng, batch):
        return module.init(rng, jax.tree.map(jnp.asarray, batch), None)["params"]

    def loss(params, batch, totals, key, *, train):
        keys = None
        if train:
            step_key = prng.fold(key, jnp.uint32(prng.PURPOSE["dropout"]))
            keys = prng.fold(step_key, batch["rows"].astype(jnp.uint32))
        metrics = terms(module.apply({"params": params}, batch, keys), batch)
        scalar = sum(metrics[f"{term}_loss"][0] / total for term, total in totals.items())
        return scalar, metrics

    def outputs(params, batch):
        return module.apply({"params": params}, batch, None)

    return Objective(init, weights, loss, outputs)
