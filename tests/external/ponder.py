"""Masked LM that charges for passes (PonderNet, arXiv:2107.05407): the number of passes of each token is compared with
a geometric distribution. The loss captures the method `halt` of the network, such as external.universal."""

import jax.numpy as jnp
from external import universal
from jax.scipy.special import rel_entr

from bert_jax.checks import check_keys
from bert_jax.models import base as models
from bert_jax.objectives import base, mlm

DEFAULTS = {
    "charge": 0.1,  # weight of the divergence from the geometric distribution
    "halting": 0.4,  # probability, in that distribution, that a token halts after a pass
}


def check(config):
    check_keys(config, shares=["objective.halting"], not_negative=["objective.charge"])


def is_halt(module, name):
    return name == "halt"


def make(config, vocabulary, **fields):
    keys = config.objective

    def real_tokens(batch):
        return (batch["sequence_ids"] > 0) * batch["row_weights"][:, None]

    def weights(batch):
        totals = {"mlm": batch["masked_weights"].sum(), "ponder": real_tokens(batch).sum()}
        return {name: jnp.maximum(total, 1.0) for name, total in totals.items()}

    def terms(outputs, batch):
        nats = base.cross_entropy(outputs["mlm_logits"], batch["masked_targets"])
        halts = [*outputs["captured"].values()]
        shares = universal.distribution(halts)
        expected = universal.distribution([jnp.full_like(halt, keys.halting) for halt in halts])
        divergence = keys.charge * rel_entr(shares, expected).sum(axis=0)
        passes = jnp.einsum("n...,n->...", shares, 1.0 + jnp.arange(len(halts)))
        return {
            "mlm_loss": base.weighted_mean(nats, batch["masked_weights"]),
            "ponder_loss": base.weighted_mean(divergence, real_tokens(batch)),
            "passes": base.weighted_mean(passes, real_tokens(batch)),
        }

    network = models.make(config, vocabulary.size, **fields)
    module = mlm.Pretrainer(network, has_pairs=False)
    reads = "masked_positions", "masked_targets", "masked_weights"
    return base.from_module(module, weights, terms, captured=is_halt, reads=reads)
