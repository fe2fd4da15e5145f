"""Heads on an encoder.

B batch, L length, P predictions a row, D width, V padded vocabulary.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers


class MaskedLMHead(nn.Module):
    """vectors[B, L, D] -> logits float32[B, P, V] at the masked positions: only these meet the vocabulary."""

    vocabulary: int
    activation: str
    initializer: float
    gradient_dtype: jnp.dtype
    epsilon: float

    @nn.compact
    def __call__(self, x, masked_positions, attend):
        """`attend(vectors, bias)` gives the logits by the encoder's tied word embeddings."""
        x = jnp.take_along_axis(x, masked_positions[..., None], axis=1)
        x = layers.Dense(x.shape[-1], self.initializer, self.gradient_dtype, name="dense")(x)
        x = layers.ACTIVATIONS[self.activation](x)
        x = layers.LayerNorm(self.epsilon, x.dtype, name="norm")(x)
        size = layers.padded_size(self.vocabulary)
        bias = self.param("bias", nn.initializers.zeros, (size,), jnp.float32)
        return attend(x, bias)
