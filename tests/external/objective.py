"""Classification of sequences: a dense layer on the encoder's vectors."""

from flax import linen as nn

from bert_jax.config_checks import require
from bert_jax.objectives import base
from bert_jax.objectives.cross_entropy import cross_entropy

DEFAULTS = {}
READS = "labels label_weights"


def check(config):
    """Has no keys."""


class Classifier(nn.Module):
    encoder: nn.Module
    labels: int

    @nn.compact
    def __call__(self, batch, keys):
        return {"label_logits": nn.Dense(self.labels, name="label")(self.encoder(batch, keys))}


def make(config, vocabulary):
    def weights(batch):
        return {"label": batch["label_weights"].sum()}

    def terms(outputs, batch):
        found = cross_entropy(outputs["label_logits"], batch["labels"], batch["label_weights"])
        return dict(zip(("label_loss", "label_accuracy"), found, strict=True))

    labels = config.task.labels
    require(labels, "task.labels", config, "known once there is a store")
    module = Classifier(base.make_encoder(config, vocabulary), len(labels))
    return base.from_module(module, weights, terms)
