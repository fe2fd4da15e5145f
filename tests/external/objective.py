"""Classification of rows: a dense layer on the encoder's vector."""

from flax import linen as nn

from bert_jax.objectives import base
from bert_jax.objectives.cross_entropy import cross_entropy

DEFAULTS = {}


def check(config):
    """Has no keys."""


class Classifier(nn.Module):
    encoder: nn.Module

    @nn.compact
    def __call__(self, batch, keys):
        return {"label_logits": nn.Dense(2, name="label")(self.encoder(batch, keys))}


def make(config, vocabulary):
    def weights(batch):
        return {"label": batch["label_weights"].sum()}

    def terms(outputs, batch):
        found = cross_entropy(outputs["label_logits"], batch["label"], batch["label_weights"])
        return dict(zip(("label_loss", "label_accuracy"), found, strict=True))

    return base.from_module(Classifier(base.make_encoder(config, vocabulary)), weights, terms)
