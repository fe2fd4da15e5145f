"""Embeddings of words, positions and segments; the word embeddings also give the logits.

B batch, L length, D width, V vocabulary.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers.dense import MASKED, project, truncated_normal
from bert_jax.parallel import constraints
from bert_jax.parallel.mesh import VOCABULARY_MULTIPLE


def padded_size(vocabulary_size: int) -> int:
    """Returns the vocabulary size rounded up, for the matrix units and for sharding."""
    return -(-vocabulary_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


class Embedder(nn.Module):
    """The sum of word, position and segment embeddings: int32[B, L] each -> float32[B, L, D].

    The word embeddings are rounded to `dtype`. A table without rows is left out. The standard deviation of position
    embeddings is `position_scale` times the initializer.
    """

    vocabulary_size: int
    max_length: int
    type_vocabulary: int
    width: int
    initializer: float
    gradient_dtype: jnp.dtype
    dtype: jnp.dtype = jnp.float32
    position_scale: float = 1.0

    def setup(self):
        init = truncated_normal(self.initializer)

        def init_words(key, shape):
            is_real = jnp.arange(shape[0])[:, None] < self.vocabulary_size
            return jnp.where(is_real, init(key, shape), 0)

        rows = padded_size(self.vocabulary_size)
        self.words = self.param("words", init_words, (rows, self.width))
        if self.max_length:
            shape = self.max_length, self.width
            position_init = truncated_normal(self.position_scale * self.initializer)
            self.position_table = self.param("positions", position_init, shape)
        if self.type_vocabulary:
            self.segment_table = self.param("segments", init, (self.type_vocabulary, self.width))

    def __call__(self, tokens, positions, segments):
        vectors = constraints.lookup(self.words, tokens, self.dtype, self.gradient_dtype)
        if self.max_length:
            vectors += self.position_table.at[positions].get(mode="promise_in_bounds")
        if self.type_vocabulary:
            vectors += self.segment_table.at[segments].get(mode="promise_in_bounds")
        return constraints.stream(vectors)

    def vocabulary_logits(self, x, bias=None):
        """Returns float32 logits [..., padded V] of x[..., D] by the tied word embeddings; MASKED in the padding."""
        logits = project(x, self.words, bias, self.gradient_dtype)
        is_real = jnp.arange(self.words.shape[0]) < self.vocabulary_size
        return jnp.where(is_real, logits, MASKED)
