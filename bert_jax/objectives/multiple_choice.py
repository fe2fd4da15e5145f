"""Multiple choice: a score of each packed sequence, one for each choice, and a softmax over them (arXiv:1810.04805,
section 4.4).

B batch, S packed sequences per row. It reads, besides the arrays of the batch contract,

    targets         int32[B]     the number of the right sequence
    label_weights   float32[B]

Its output label_logits is float32[B, S, 1].
"""

from bert_jax.objectives import base, classifier
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {**classifier.DEFAULTS}
check = classifier.check


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective: the cross-entropy of the right sequence of each row, in nats."""

    def losses(logits, targets):
        return base.cross_entropy(logits[..., 0], targets, config.objective.label_smoothing)

    return classifier.from_losses(config, vocabulary, losses, 1, **fields)
