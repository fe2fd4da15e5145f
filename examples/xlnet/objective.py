"""Permutation language modelling (arXiv:1906.08237): the tokens at `masked_positions` are predicted one after the other
in an order of each row, each from those before it.

B batch, L length, P predictions, V padded vocabulary. It reads, besides the arrays of the batch contract and those of
masked LM (tasks/text/mlm_batch.py), of which no token is replaced,

    ranks    int32[B, L]    place in the order; 0 for tokens that are not predicted, which all see
"""

from flax import linen as nn

from bert_jax.checks import require
from bert_jax.layers import heads
from bert_jax.models import base as models
from bert_jax.objectives import base, mlm
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {}


def check(config) -> None:
    """Raises BadInput for a model without a query stream."""
    hint = "expected xlnet.model, which has two streams"
    require(config.model.name == "xlnet.model", "model.name", config, hint)


class PermutationLM(nn.Module):
    """A network with two streams and a head over the vocabulary, tied to the word embeddings."""

    network: nn.Module

    def setup(self):
        self.lm = heads.LMHead(self.network.head)

    def __call__(self, batch, keys):
        """Returns plm_logits float32[B, P, V]."""
        x = self.network.predict(batch, keys)
        return {"plm_logits": self.lm(x, self.network.vocabulary_logits)}


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective: the term `plm`, with the metrics `plm_loss` in nats and `plm_accuracy`."""

    def weights(batch):
        return {"plm": mlm.total(batch)}

    def terms(outputs, batch):
        targets = batch["masked_targets"], batch["masked_weights"]
        return base.scored("plm", outputs["plm_logits"], *targets)

    def guesses(outputs, batch):
        values = base.guess(outputs["plm_logits"])
        is_guessed = mlm.fill_masks(batch["masked_weights"] > 0, batch)
        return {name: mlm.fill_masks(value, batch) for name, value in values.items()} | {
            "targets": batch["tokens"],
            "is_guessed": is_guessed,
        }

    return base.from_module(
        PermutationLM(models.make(config, vocabulary.size, **fields)),
        weights,
        terms,
        guesses=guesses,
        reads=(*mlm.READS, "ranks"),
        headline="plm_loss",
    )
