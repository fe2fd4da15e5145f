"""Masked LM (arXiv:1810.04805), with next-sentence prediction, sentence order (arXiv:1909.11942) or neither."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import heads, layers
from bert_jax.objectives import base
from bert_jax.objectives.cross_entropy import cross_entropy
from bert_jax.tokenizers.special_tokens import Vocabulary


class Pretrainer(nn.Module):
    """An encoder with the masked-LM head and, if there are pairs, the pair head."""

    encoder: nn.Module
    paired: bool

    def setup(self):
        encoder = self.encoder
        self.mlm = heads.MaskedLMHead(
            encoder.vocabulary,
            encoder.activation,
            encoder.initializer,
            encoder.gradient_dtype,
            encoder.epsilon,
        )
        if self.paired:
            self.pair = layers.Dense(2, encoder.initializer, encoder.gradient_dtype)

    def __call__(self, batch, keys):
        x = self.encoder(batch, keys)
        outputs = {"mlm_logits": self.mlm(x, batch["masked_positions"], self.encoder.attend)}
        if self.paired:
            pooled = self.encoder.pool(x, batch["cls_positions"])
            outputs["pair_logits"] = self.pair(pooled).astype(jnp.float32)
        return outputs


def make(config, vocabulary: Vocabulary) -> base.Objective:
    """Terms `mlm` and `nsp` or `sop`, each a mean of its own; metrics `_loss` in nats and `_accuracy`."""
    pairs = config.objective.pair_task
    paired = pairs != "none"

    def weights(batch):
        # The original's guard against a batch without masks, kept so that the loss is its loss.
        totals = {"mlm": batch["masked_weights"].sum() + 1e-5}
        if paired:
            totals[pairs] = jnp.maximum(batch["pair_weights"].sum(), 1.0)
        return totals

    def terms(outputs, batch):
        logits, targets = outputs["mlm_logits"], batch["masked_targets"]
        metrics = {}
        metrics["mlm_loss"], metrics["mlm_accuracy"] = cross_entropy(
            logits, targets, batch["masked_weights"]
        )
        # Kept and random tokens can be copied or guessed at; only these positions compare with the unigram entropy.
        shown = jnp.take_along_axis(batch["tokens"], batch["masked_positions"], axis=1)
        masked = batch["masked_weights"] * (shown == vocabulary.mask)
        metrics["mlm_loss_masked"], _ = cross_entropy(logits, targets, masked)
        if paired:
            metrics[f"{pairs}_loss"], metrics[f"{pairs}_accuracy"] = cross_entropy(
                outputs["pair_logits"], batch["pair_labels"], batch["pair_weights"]
            )
        return metrics

    module = Pretrainer(base.make_encoder(config, vocabulary), paired)
    return base.from_module(module, weights, terms)
