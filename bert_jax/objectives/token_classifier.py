"""Classification of tokens: a dense layer on the vector of each token (arXiv:1810.04805, section 5.3).

B batch, L length, C labels. It reads, besides the arrays of the batch contract,

    targets         int32[B, L]     the label of a token
    label_weights   float32[B, L]   0 for a token without a label

Its output label_logits is float32[B, L, C].
"""

from bert_jax.layers import heads
from bert_jax.objectives import base, classifier
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {**heads.DEFAULTS, **classifier.LOSS_DEFAULTS}
check = classifier.check


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective: the mean cross-entropy of the tokens with a label, in nats."""
    smoothing = config.objective.label_smoothing

    def losses(logits, targets):
        return base.cross_entropy(logits, targets, smoothing)

    return classifier.from_losses(config, vocabulary, losses, **fields)
