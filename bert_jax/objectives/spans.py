"""Spans of a text: each token's logits for the first and the last token of the span (arXiv:1810.04805, section 4.2).

B batch, L length. A row without a span has [CLS] as its first and last token. It reads, besides the arrays of the batch
contract,

    start_positions, end_positions    int32[B] the first and the last token of the span
    label_weights                     float32[B]
"""

import jax
import jax.numpy as jnp

from bert_jax.layers import blocks, heads
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {
    **heads.DEFAULTS,
    "dropout": 0.0,  # dropout rate on the vectors in front of the last dense layer
}
# See base.py.
READS = "start_positions end_positions label_weights"
HEADS = {"label_logits": {"label", "mix"}}
check = heads.check


def make(config, vocabulary: Vocabulary) -> base.Objective:
    """Returns the objective with the term `span`: the mean of two cross-entropies over a row's tokens, in nats.

    Its output is label_logits, float32[B, L, 2].
    """

    def weights(batch):
        return {"span": jnp.maximum(batch["label_weights"].sum(), 1.0)}

    def terms(outputs, batch):
        weight, real = batch["label_weights"], batch["sequence_ids"] > 0
        targets = jnp.stack([batch["start_positions"], batch["end_positions"]], axis=1)
        logits = jnp.where(real[..., None], outputs["label_logits"], blocks.MASKED)
        logits = logits.transpose(0, 2, 1)  # [B, 2, L]
        logs = jax.nn.log_softmax(logits)
        loss = -jnp.take_along_axis(logs, targets[..., None], axis=-1)[..., 0].mean(axis=1)
        hits = (logits.argmax(-1) == targets).all(axis=1)
        return {
            "span_loss": ((weight * loss).sum(), weight.sum()),
            "span_accuracy": ((weight * hits).sum(), weight.sum()),
        }

    encoder = base.make_encoder(config, vocabulary)
    module = heads.Classifier(encoder, 2, config.objective.features, config.objective.dropout)
    return base.from_module(module, weights, terms)
