"""Causal LM (arXiv:1801.10198): predicts every token from the ones before it, by any network and its vocabulary head.

B batch, L length, V padded vocabulary. It reads, besides the arrays of the batch contract,

    next_weights    float32[B, L]    whether the token after this one counts; 0 at the last position

and tokens that are not masked.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers import heads
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

DEFAULTS = {}
FIRST, LAST = 8, 32  # positions in a sample between which the guesses are shown


class LanguageModel(nn.Module):
    """A network with causal attention and a head over the vocabulary, tied to the word embeddings."""

    network: nn.Module

    def setup(self):
        self.lm = heads.LMHead(self.network.head)

    def __call__(self, batch, keys):
        """Returns lm_logits float32[B, L, V]: at each position those of the next token."""
        x = self.network(batch, keys)
        return {"lm_logits": self.lm(x, self.network.vocabulary_logits)}

    def start(self, batch, length: int):
        """Returns the cache of prompts; see `layers.network.Network.start`."""
        return self.network.start(batch, length)

    def step(self, tokens, cache):
        """Returns float32[B, V], the logits after one more token int32[B] of each row, and the cache with it."""
        x, cache = self.network.read_next(tokens, cache)
        return self.lm(x, self.network.vocabulary_logits), cache


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the causal LM objective: the term `lm`, with the metrics `lm_loss` in nats and `lm_accuracy`."""

    def weights(batch):
        return {"lm": jnp.maximum(batch["next_weights"].sum(), 1.0)}

    def terms(outputs, batch):
        # The last position is not cut off: TPUs compute arrays in tiles of 128 tokens.
        targets = jnp.roll(batch["tokens"], -1, axis=1)
        return base.scored("lm", outputs["lm_logits"], targets, batch["next_weights"])

    def guesses(outputs, batch):
        logits = jnp.roll(outputs["lm_logits"], 1, axis=1)  # from the token before
        positions = jnp.arange(logits.shape[1])
        is_shown = (positions >= FIRST) & (positions < LAST)
        is_guessed = (jnp.roll(batch["next_weights"], 1, axis=1) > 0) & is_shown
        return base.guess(logits) | {"targets": batch["tokens"], "is_guessed": is_guessed}

    return base.from_module(
        LanguageModel(models.make(config, vocabulary.size, causal=True, **fields)),
        weights,
        terms,
        guesses=guesses,
        reads=("next_weights",),
        headline="lm_loss",
        can=dict.fromkeys(("continue", "score"), {"lm"}),
    )
