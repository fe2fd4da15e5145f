"""Classification and regression of texts: a dense layer on a vector of each text (arXiv:1810.04805, section 4.1).

B batch, C outputs: one for each label, or one for a number. It reads, besides the arrays of the batch contract,

    targets         int32[B] the class, float32[B, C] 1 for each label that applies, or float32[B] the number
    label_weights   float32[B]
"""

import jax
import jax.numpy as jnp

from bert_jax.checks import check_keys, require
from bert_jax.layers import heads, pooling
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

LOSS_DEFAULTS = {
    "label_smoothing": 0.0,  # share of the probability that is spread over all classes
    # weight of the causal LM's loss of the texts beside that of the labels: the mean over the tokens of each text, and
    # then over texts. It needs causal attention. 0: none; GPT has 0.5
    "lm_weight": 0.0,
}
DEFAULTS = {**heads.POOL_DEFAULTS, **LOSS_DEFAULTS}


def check(config) -> None:
    """Raises BadInput for the first of the objective's keys that has an invalid value."""
    heads.check(config)
    check_keys(config, shares=["objective.label_smoothing"], not_negative=["objective.lm_weight"])
    if config.task.get("kind", "classes") != "classes":
        is_zero = config.objective.label_smoothing == 0
        require(
            is_zero,
            "objective.label_smoothing",
            config,
            "expected 0: task.kind is not classes",
        )


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective of `task.kind`: cross-entropy in nats (of each label by itself if several apply), or the
    squared error of a number."""
    kind = config.task.get("kind", "classes")
    smoothing = config.objective.label_smoothing

    def losses(logits, targets):
        """Returns float32[B]."""
        if kind == "number":
            return jnp.square(logits[:, 0, 0] - targets)
        if kind == "labels":
            nats = jax.nn.softplus(logits[:, 0]) - targets * logits[:, 0]
            return nats.mean(axis=-1)
        return base.cross_entropy(logits[:, 0], targets, smoothing)

    return from_losses(config, vocabulary, losses, **fields)


def from_losses(
    config, vocabulary: Vocabulary, losses, outputs: int = 0, **fields
) -> base.Objective:
    """Returns the objective of a heads.Classifier, with the term `label`: the mean loss by label_weights. With
    `objective.lm_weight` it has the term `lm`, too.

    losses: (label_logits, targets) -> float32 of the shape of label_weights.

    Raises BadInput for keys that do not go with the direction of attention.
    """
    keys = config.objective
    lm_weight = keys.lm_weight

    def weights(batch):
        totals = {"label": jnp.maximum(batch["label_weights"].sum(), 1.0)}
        if lm_weight:
            totals["lm"] = jnp.maximum(lm_weights(batch).sum(), 1.0) / lm_weight
        return totals

    def terms(outputs, batch):
        loss = losses(outputs["label_logits"], batch["targets"])
        metrics = {"label_loss": base.weighted_mean(loss, batch["label_weights"])}
        if lm_weight:
            targets = jnp.roll(batch["tokens"], -1, axis=1)
            nats = base.cross_entropy(outputs["lm_logits"], targets)
            metrics["lm_loss"] = base.weighted_mean(nats, lm_weights(batch))
        return metrics

    def select(call, batch):
        # Logits over the vocabulary would be copied to the host.
        return {"label_logits": call("__call__")(batch, None)["label_logits"]}

    labels = config.task.get("labels", ())  # empty until there is a store
    network = models.make(config, vocabulary.size, **fields)
    pool = keys.get("pool", "")
    is_valid = network.causal or not lm_weight
    require(is_valid, "objective.lm_weight", config, "the attention is not causal")
    pooling.check(network, pool, "config.objective.pool")
    module = heads.Classifier(
        network,
        outputs or max(1, len(labels)),
        keys.features,
        keys.dropout,
        pool,
        is_summed=config.task.get("both_orders", False),
        has_lm=lm_weight > 0,
    )
    parts = {"label", "mix"}
    if pool:
        parts.add("pooler")
    return base.from_module(
        module,
        weights,
        terms,
        select,
        reads=("targets", "label_weights"),
        can={"label": parts},
    )


def lm_weights(batch):
    """Returns float32[B, L]: the weight of the token after each one. Those of a packed sequence add up to 1; 0 at
    its last token, and in rows that only fill the batch.

    The source is train.py of openai/finetune-transformer-lm.
    """
    ids = batch["sequence_ids"]
    numbers = 1 + jnp.arange(batch["cls_positions"].shape[1])[:, None]
    is_member = (ids[:, None] == numbers) & base.has_next(ids)[:, None]  # [B, S, L]
    shares = is_member / jnp.maximum(is_member.sum(axis=-1, keepdims=True), 1)
    return shares.sum(axis=1) * batch["row_weights"][:, None]
