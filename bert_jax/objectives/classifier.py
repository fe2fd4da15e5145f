"""Classification and regression of texts: a dense layer on a vector of each text (arXiv:1810.04805, section 4.1).

B batch, C outputs: one for each label, or one for a number. It reads, besides the arrays of the batch contract,

    targets         int32[B] the class, float32[B, C] 1 for each label that applies, or float32[B] the number
    label_weights   float32[B]
"""

import jax
import jax.numpy as jnp

from bert_jax.config_checks import check_keys, require
from bert_jax.layers import heads
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {
    **heads.POOL_DEFAULTS,
    "label_smoothing": 0.0,  # share of the probability that is spread over all classes
}


def check(config) -> None:
    """Raises BadInput for the first of the objective's keys that has an invalid value."""
    heads.check(config)
    check_keys(config, shares=["objective.label_smoothing"])
    if config.task.get("kind", "classes") != "classes":
        is_zero = config.objective.label_smoothing == 0
        hint = "expected 0: task.kind is not classes"
        require(is_zero, "objective.label_smoothing", config, hint)


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective of `task.kind`: cross-entropy in nats (of each label by itself if several apply), or the
    squared error of a number."""
    kind = config.task.get("kind", "classes")
    labels = config.task.get("labels", ())  # empty until there is a store
    smoothing = config.objective.label_smoothing

    def losses(logits, targets):
        """Returns float32[B]."""
        if kind == "number":
            return jnp.square(logits[:, 0, 0] - targets)
        if kind == "labels":
            nats = jax.nn.softplus(logits[:, 0]) - targets * logits[:, 0]
            return nats.mean(axis=-1)
        return base.cross_entropy(logits[:, 0], targets, smoothing)

    return from_losses(config, vocabulary, max(1, len(labels)), losses, **fields)


def from_losses(config, vocabulary: Vocabulary, outputs: int, losses, **fields) -> base.Objective:
    """Returns the objective of a heads.Classifier, with the term `label`: the mean loss by label_weights.

    losses: (label_logits, targets) -> float32 of the shape of label_weights.
    """
    keys = config.objective

    def weights(batch):
        return {"label": jnp.maximum(batch["label_weights"].sum(), 1.0)}

    def terms(outputs, batch):
        loss = losses(outputs["label_logits"], batch["targets"])
        return {"label_loss": base.weighted_mean(loss, batch["label_weights"])}

    encoder = models.make(config, vocabulary.size, **fields)
    module = heads.Classifier(encoder, outputs, keys.features, keys.dropout, keys.get("pool", ""))
    parts = {"label", "mix"}
    if "pool" in keys:
        parts.add("pooler")
    return base.from_module(
        module,
        weights,
        terms,
        reads=("targets", "label_weights"),
        heads={"label_logits": parts},
    )
