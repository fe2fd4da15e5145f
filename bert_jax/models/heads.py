"""Output heads on top of an encoder.

B batch, L length, P predictions per row, D width, V padded vocabulary.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers


class MaskedLMHead(nn.Module):
    """The masked-LM head: hidden states [B, L, D] -> logits float32[B, P, V], at the masked positions only."""

    vocabulary_size: int
    activation: str
    initializer: float
    gradient_dtype: jnp.dtype
    epsilon: float

    @nn.compact
    def __call__(self, x, masked_positions, vocabulary_logits):
        """Returns the logits. masked_positions: int32[B, P]. vocabulary_logits: the encoder's method of that name."""
        x = jnp.take_along_axis(x, masked_positions[..., None], axis=1)
        x = layers.Dense(x.shape[-1], self.initializer, self.gradient_dtype, name="dense")(x)
        x = layers.ACTIVATIONS[self.activation](x)
        x = layers.LayerNorm(self.epsilon, x.dtype, name="norm")(x)
        size = layers.padded_size(self.vocabulary_size)
        bias = self.param("bias", nn.initializers.zeros, (size,), jnp.float32)
        return vocabulary_logits(x, bias)
