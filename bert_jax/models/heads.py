"""Output heads on top of an encoder.

D width, V padded vocabulary.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers


class LMHead(nn.Module):
    """BERT's head over the vocabulary: hidden states [..., D] -> logits float32[..., V]."""

    vocabulary_size: int
    activation: str
    initializer: float
    gradient_dtype: jnp.dtype
    epsilon: float

    @nn.compact
    def __call__(self, x, vocabulary_logits):
        """Returns the logits. vocabulary_logits: the encoder's method of that name."""
        x = layers.Dense(x.shape[-1], self.initializer, self.gradient_dtype, name="dense")(x)
        x = layers.ACTIVATIONS[self.activation](x)
        x = layers.LayerNorm(self.epsilon, x.dtype, name="norm")(x)
        size = layers.padded_size(self.vocabulary_size)
        bias = self.param("bias", nn.initializers.zeros, (size,), jnp.float32)
        return vocabulary_logits(x, bias)


def lm_head(encoder) -> LMHead:
    """Returns the head over the vocabulary of an encoder, with its sizes and data types."""
    return LMHead(
        encoder.vocabulary_size,
        encoder.activation,
        encoder.initializer,
        encoder.gradient_dtype,
        encoder.epsilon,
    )
