"""Replaced tokens (arXiv:2003.10555): a discriminator finds the tokens that a smaller masked LM, the generator, drew.

Both are networks of model.name=electra, and share the embeddings, with their norm. Details are those of
https://github.com/google-research/electra, run_pretraining.py, except that the last layer of the discriminator starts
with `model.initializer`, as in transformers. What is exported, fine-tuned and compared is the discriminator.

B batch, L length, P predictions per row, V padded vocabulary.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.checks import check_keys, require
from bert_jax.config import resolve_model
from bert_jax.layers.blocks import ACTIVATIONS
from bert_jax.layers.dense import Dense
from bert_jax.models import base as models
from bert_jax.objectives import base, mlm
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {
    "generator": 4,  # divisor of the model's width, heads and feed-forward size, which gives those of the generator
    "weight": 50.0,  # of the discriminator's loss; that of the generator has 1
}
SIZES = ("width", "heads", "feed_forward")
GENERATOR = 1 << 17  # number of the generator's dropout keys; those of layers are smaller


def check(config) -> None:
    """Raises BadInput for the first of the objective's keys that has an invalid value, and for another model, whose
    generator could not share its embeddings."""
    check_keys(config, at_least_one=["objective.generator"])
    require(config.objective.weight > 0, "objective.weight", config, "expected more than 0")
    hint = "needs model.name=electra"
    require(config.model.name == "electra", "objective.name", config, hint)
    divisor = config.objective.generator
    sizes = resolve_model(config).model
    for size in SIZES:
        hint = f"does not divide model.{size}={sizes[size]}"
        require(sizes[size] % divisor == 0, "objective.generator", config, hint)
    heads = sizes.heads // divisor
    hint = f"does not divide {heads} heads of the generator"
    require(heads % config.mesh.tensor == 0, "mesh.tensor", config, hint)


def generator_config(config):
    """Returns the config of the generator as a model of its own, a masked LM."""
    config = resolve_model(config)
    model = config.model
    embedding_width = model.embedding_width or model.width
    for size in SIZES:
        model[size] //= config.objective.generator
    model.embedding_width = 0 if embedding_width == model.width else embedding_width
    config.objective = {"name": "mlm"}
    return config


def generator_params(params) -> dict:
    """Returns the parameters of the generator as a model of its own, of those of both."""
    network, generator = params["network"], params["generator"]
    shared = {name: network[name] for name in ("embedder", "embedder_norm")}
    return generator | {"network": generator["network"] | shared}


class JointPretrainer(nn.Module):
    """The discriminator, a network with a head of two dense layers, and the generator, a mlm.Pretrainer."""

    network: nn.Module
    generator: nn.Module

    def setup(self):
        head = self.network.head
        options = head.options
        self.replaced_dense = Dense(head.width, options.initializer, options.gradient_dtype)
        self.replaced = Dense(1, options.initializer, options.gradient_dtype)

    def __call__(self, batch, keys):
        """Returns the generator's mlm_logits float32[B, P, V], what it drew, samples int32[B, P], and of all tokens
        replaced_logits float32[B, L] and is_replaced bool[B, L]."""
        generator_keys = None
        if keys is not None:
            generator_keys = prng.fold(keys, jnp.uint32(GENERATOR))
        outputs = self.generator(batch, generator_keys, self.network)
        samples = sample(outputs["mlm_logits"], batch)
        original = mlm.fill_masks(batch["masked_targets"], batch)
        tokens = mlm.fill_masks(samples, batch)
        return outputs | {
            "samples": samples,
            "replaced_logits": self.discriminate(batch | {"tokens": tokens}, keys),
            "is_replaced": tokens != original,
        }

    def discriminate(self, batch, keys=None):
        """Returns float32[B, L]: the logit of each token that it was replaced."""
        x = self.replaced_dense(self.network(batch, keys))
        x = ACTIVATIONS[self.network.activation](x)
        return self.replaced(x.astype(jnp.float32))[..., 0]


def sample(logits, batch):
    """Draws a token int32[B, P], which has no gradient, for each prediction by the softmax of logits float32[B, P, V].

    The logit with noise of the Gumbel distribution is the largest as often as softmax says. A draw is a function of the
    step, the row and the position.
    """
    keys = prng.fold(batch["draw_keys"][:, None], batch["masked_positions"].astype(jnp.uint32))
    bits = prng.fold(keys[..., None], jnp.arange(logits.shape[-1], dtype=jnp.uint32))
    uniform = ((bits >> 9).astype(jnp.float32) + 0.5) * 2**-23  # neither 0 nor 1
    noise = -jnp.log(-jnp.log(uniform))
    return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective: the terms `mlm` of the generator and, times `weight`, `replaced` of the discriminator.

    Each is a mean of its own, that of `replaced` over all tokens. Its metrics are `replaced_loss` in nats, unweighted,
    `replaced_accuracy`, `replaced_share` of the tokens, `replaced_recall`, the share of these that it finds, and
    `replaced_precision`, the share that is replaced of what it takes for replaced.
    """

    def weigh(batch):
        """Returns float32[B, L]: 1 for a token that is not padding."""
        return (batch["sequence_ids"] > 0) * batch["row_weights"][:, None]

    def weights(batch):
        count = jnp.maximum(weigh(batch).sum(), 1.0)
        return {"mlm": mlm.total(batch), "replaced": count / config.objective.weight}

    def terms(outputs, batch):
        logits = outputs["replaced_logits"]
        is_replaced = outputs["is_replaced"]
        weight = weigh(batch)
        nats = jax.nn.softplus(logits) - is_replaced * logits
        is_found = logits > 0
        is_right = is_found == is_replaced
        return mlm.measure(outputs["mlm_logits"], batch, vocabulary.mask) | {
            "replaced_loss": base.weighted_mean(nats, weight),
            "replaced_accuracy": base.weighted_mean(is_right, weight),
            "replaced_share": base.weighted_mean(is_replaced, weight),
            "replaced_recall": base.weighted_mean(is_right, weight * is_replaced),
            "replaced_precision": base.weighted_mean(is_right, weight * is_found),
        }

    network = models.make(config, vocabulary.size, **fields)
    generator = models.make(generator_config(config), vocabulary.size, **fields)
    return base.from_module(
        JointPretrainer(network, mlm.Pretrainer(generator, has_pairs=False)),
        weights,
        terms,
        guesses=partial(mlm.guesses, mask=vocabulary.mask),
        reads=mlm.READS,
        headline=mlm.HEADLINE,
    )
