"""Masked LM (arXiv:1810.04805), with next-sentence prediction, sentence order (arXiv:1909.11942) or neither."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers import heads
from bert_jax.layers.dense import Dense
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {}
READS = "masked_positions", "masked_targets", "masked_weights"
HEADLINE = "mlm_loss_masked"  # the loss of all predicted tokens is lower: kept ones can be copied


class Pretrainer(nn.Module):
    """A network with the masked-LM head and, if `has_pairs`, a two-class head on the pooled [CLS] vectors.

    A call with `shared`, a network, takes the embeddings and the logits of that one.
    """

    network: nn.Module
    has_pairs: bool

    def setup(self):
        head = self.network.head
        self.mlm = heads.LMHead(head)
        if self.has_pairs:
            self.pair = Dense(2, head.options.initializer, head.options.gradient_dtype)

    def __call__(self, batch, keys, shared=None):
        if shared:
            x = self.network.states(batch, keys, shared.embeddings(batch))[-1]
        else:
            x = self.network(batch, keys)
        vectors = jnp.take_along_axis(x, batch["masked_positions"][..., None], axis=1)
        outputs = {"mlm_logits": self.mlm(vectors, (shared or self.network).vocabulary_logits)}
        if self.has_pairs:
            pooled = self.network.summary(x, batch)
            outputs["pair_logits"] = self.pair(pooled.astype(jnp.float32))
        return outputs


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the masked-LM objective: the terms `mlm` and, by `task.pair_task`, `nsp`, `sop` or none.

    Each term is a mean of its own, with the metrics `{term}_loss` in nats and `{term}_accuracy`.
    """
    pair_task = config.task.get("pair_task", "none")
    has_pairs = pair_task != "none"

    def weights(batch):
        totals = {"mlm": total(batch)}
        if has_pairs:
            totals[pair_task] = jnp.maximum(batch["pair_weights"].sum(), 1.0)
        return totals

    def terms(outputs, batch):
        metrics = measure(outputs["mlm_logits"], batch, vocabulary.mask)
        if has_pairs:
            pairs = outputs["pair_logits"], batch["pair_labels"], batch["pair_weights"]
            metrics |= base.scored(pair_task, *pairs)
        return metrics

    reads = READS
    if has_pairs:
        reads += "pair_labels", "pair_weights"
    return base.from_module(
        Pretrainer(models.make(config, vocabulary.size, **fields), has_pairs),
        weights,
        terms,
        guesses=partial(guesses, mask=vocabulary.mask),
        reads=reads,
        headline=HEADLINE,
        can=dict.fromkeys(("fill", "score"), {"mlm"}),
    )


def total(batch):
    """Returns the weight of the term `mlm` of a batch."""
    # The original code adds 1e-5, against a batch without masked positions. It is kept so that losses are equal.
    return batch["masked_weights"].sum() + 1e-5


def measure(logits, batch, mask: int) -> dict:
    """Returns the metrics of the term `mlm`. logits: float32[B, P, V]. mask: the id of [MASK]."""
    targets = batch["masked_targets"]
    weight = batch["masked_weights"]
    nats = base.cross_entropy(logits, targets)
    # Where the token was left unchanged, the model can copy it. So only the loss at [MASK] is compared with the unigram
    # entropy.
    tokens = jnp.take_along_axis(batch["tokens"], batch["masked_positions"], axis=1)
    return {
        "mlm_loss": base.weighted_mean(nats, weight),
        "mlm_accuracy": base.weighted_mean(base.hits(logits, targets), weight),
        "mlm_loss_masked": base.weighted_mean(nats, weight * (tokens == mask)),
    }


def guesses(outputs, batch, mask: int) -> dict:
    """Returns what `base.guess` says of rows, at their [MASK] tokens."""
    values = base.guess(outputs["mlm_logits"])
    return {name: fill_masks(value, batch) for name, value in values.items()} | {
        "targets": fill_masks(batch["masked_targets"], batch),
        "is_guessed": fill_masks(batch["masked_weights"] > 0, batch) & (batch["tokens"] == mask),
    }


def fill_masks(values, batch):
    """Returns the tokens int32[B, L] of a batch with others [B, P] at the masked positions; of values of another type,
    zeros with these."""
    tokens = batch["tokens"]
    length = tokens.shape[1]
    # Places without a prediction have weight 0, and position 0.
    positions = jnp.where(batch["masked_weights"] > 0, batch["masked_positions"], length)

    def fill_row(row, positions, values):
        return row.at[positions].set(values, mode="drop")

    if values.dtype != tokens.dtype:
        tokens = jnp.zeros(tokens.shape, values.dtype)
    return jax.vmap(fill_row)(tokens, positions, values)
