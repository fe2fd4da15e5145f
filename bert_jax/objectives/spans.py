"""Spans of a text: each token's logits for the first and the last token of the span (arXiv:1810.04805, section 4.2).

B batch, L length. A row without a span has [CLS] as its first and last token. It reads, besides the arrays of the batch
contract,

    start_positions, end_positions    int32[B] the first and the last token of the span
    label_weights                     float32[B]
"""

import jax.numpy as jnp

from bert_jax.layers import heads
from bert_jax.layers.dense import MASKED
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {
    **heads.DEFAULTS,
    "dropout": 0.0,  # dropout rate on the vectors in front of the last dense layer
}
check = heads.check


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective with the term `span`: the mean of two cross-entropies over a row's tokens, in nats.

    Its output is label_logits, float32[B, L, 2].
    """

    def weights(batch):
        return {"span": jnp.maximum(batch["label_weights"].sum(), 1.0)}

    def terms(outputs, batch):
        weight = batch["label_weights"]
        is_real = batch["sequence_ids"] > 0
        targets = jnp.stack([batch["start_positions"], batch["end_positions"]], axis=1)
        logits = jnp.where(is_real[..., None], outputs["label_logits"], MASKED)
        logits = logits.transpose(0, 2, 1)  # [B, 2, L]
        nats = base.cross_entropy(logits, targets).mean(axis=1)
        hits = base.hits(logits, targets).all(axis=1)
        return {
            "span_loss": base.weighted_mean(nats, weight),
            "span_accuracy": base.weighted_mean(hits, weight),
        }

    network = models.make(config, vocabulary.size, **fields)
    module = heads.Classifier(network, 2, config.objective.features, config.objective.dropout)
    return base.from_module(
        module,
        weights,
        terms,
        reads=("start_positions", "end_positions", "label_weights"),
        can={"answer": {"label", "mix"}},
    )
