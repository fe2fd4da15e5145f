"""The softmax over words: in full, or over the target and a sample of the others (arXiv:1412.2007).

The sample has S different words. Its probabilities are log-uniform in their numbers, which suits words in the order of
their frequency. A vocabulary of WordPiece begins with characters, and has parts of words, which are no targets; the
corrections are right for any order.

B batch, L length, P width, V padded vocabulary, S words of the sample.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import prng
from bert_jax.layers.dense import MASKED
from bert_jax.layers.embeddings import Embedder, padded_size
from bert_jax.objectives import base

FLOAT32 = {"preferred_element_type": jnp.float32}
PRECISION = 24  # bits of a uniform draw, which float32 has


class Sample(NamedTuple):
    """Words to compare a target with."""

    words: jax.Array  # int32[S]
    # float32[V], the logarithm of the probability that a word is in the sample
    corrections: jax.Array


def probabilities(size: int) -> np.ndarray:
    """Returns the log-uniform distribution float32[size], as TensorFlow's log_uniform_candidate_sampler has it."""
    numbers = np.arange(size)
    return (np.log((numbers + 2) / (numbers + 1)) / np.log(size + 1)).astype(np.float32)


def draw(key, vocabulary: int, size: int) -> Sample:
    """Draws different words, one after the other.

    Each word waits for a time that is exponential, with its probability as the rate; the first ones are the sample.
    Given the time of the first word that is not in it, the probability of a word is that of a shorter time.

    key: uint32[].
    vocabulary: number of words.
    size: S, less than that.
    """
    rates = jnp.asarray(probabilities(vocabulary))
    bits = prng.fold(key, jnp.arange(vocabulary, dtype=jnp.uint32)) >> (32 - PRECISION)
    uniform = (bits.astype(jnp.float32) + 1) * 2.0**-PRECISION
    times, words = jax.lax.top_k(jnp.log(uniform) / rates, size + 1)
    shares = -jnp.expm1(rates * times[-1])
    corrections = jnp.pad(jnp.log(shares), (0, padded_size(vocabulary) - vocabulary))
    return Sample(words[:-1], corrections)


class Softmax(nn.Module):
    """The softmax of both directions."""

    vocabulary_size: int
    width: int
    dtype: jnp.dtype
    gradient_dtype: jnp.dtype

    def setup(self):
        initializer = self.width**-0.5
        sizes = self.vocabulary_size, 0, 0, self.width
        self.embedder = Embedder(*sizes, initializer, self.gradient_dtype, self.dtype)
        shape = (padded_size(self.vocabulary_size),)
        self.bias = self.param("bias", nn.initializers.zeros, shape, jnp.float32)

    def __call__(self, x, targets, sample: Sample | None = None):
        """Returns the cross-entropy of targets int32[B, L] in nats, float32[B, L]. x: [B, L, P]."""
        if sample is None:
            logits = self.embedder.vocabulary_logits(x, self.bias)
            return base.cross_entropy(logits, targets)
        right = jnp.einsum("blp,blp->bl", x, self.look_up(targets), **FLOAT32)
        right += self.correct(targets, sample)
        others = jnp.einsum("blp,sp->bls", x, self.look_up(sample.words[None])[0], **FLOAT32)
        others += self.correct(sample.words, sample)
        others = jnp.where(sample.words == targets[..., None], MASKED, others)
        both = jnp.concatenate([right[..., None], others], axis=-1)
        return nn.logsumexp(both, axis=-1) - right

    def look_up(self, words):
        return self.embedder(words, None, None).astype(self.dtype)

    def correct(self, words, sample: Sample):
        """Returns what is added to the logits of words, float32 of their shape."""
        return (self.bias - sample.corrections).at[words].get(mode="promise_in_bounds")
