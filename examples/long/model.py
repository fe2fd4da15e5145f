"""A causal decoder whose layers alternate between local and memory-compressed attention (arXiv:1801.10198).

Layers 0, 2, ... attend in blocks of `block` tokens, and layers 1, 3, ... to keys and values of windows of `compression`
tokens, of all the row. So a row of L tokens has L (block + L / compression) / 2 scores a layer, instead of L L. See
attention.py for what a token sees.

B batch, L length, D width.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from long import attention

from bert_jax.checks import check_keys
from bert_jax.layers.attention_spec import OTHER_KEYS, PAIRS
from bert_jax.models import gpt

DEFAULTS = gpt.DEFAULTS | {
    "block": 256,  # tokens of a block of local attention
    "compression": 3,  # tokens of a window, which have one key
}


def check(config):
    gpt.check(config)
    check_keys(config, at_least_one=["model.block", "model.compression"])


class Row(NamedTuple):
    """The cache of a Decoder."""

    tokens: jax.Array  # int32[B, L], L the positions of the network
    size: jax.Array  # int32[B], tokens that are read


class Decoder(gpt.Gpt, kw_only=True):
    """A decoder that computes all states again for each new token, since a Cache has keys of tokens alone."""

    def start(self, batch, length: int) -> Row:
        # In a beam search `length` is less than the tokens of a hypothesis: only a Cache grows.
        tokens = batch["tokens"]
        missing = max(0, self.max_length - tokens.shape[1])
        sizes = (batch["sequence_ids"] > 0).sum(axis=1, dtype=jnp.int32) - 1
        return Row(jnp.pad(tokens, ((0, 0), (0, missing))), sizes)

    def read_next(self, tokens, cache: Row) -> tuple:
        """Returns the last states [B, D] with one more token int32[B] of each row, and the cache with it."""
        row = jnp.arange(len(tokens))
        places = jnp.broadcast_to(jnp.arange(cache.tokens.shape[1]), cache.tokens.shape)
        cache = Row(cache.tokens.at[row, cache.size].set(tokens), cache.size + 1)
        batch = {
            "tokens": cache.tokens,
            "positions": places,
            "sequence_ids": (places < cache.size[:, None]).astype(jnp.int32),
        }
        return self(batch)[row, cache.size - 1], cache


class Long(Decoder, kw_only=True):
    """Rows of tokens to hidden states, by local and compressed attention in turn."""

    block: int
    compression: int

    @property
    def specs(self):
        spec = self.make_spec(self.attention_dropout)
        local = spec._replace(needs=attention.BlockAttention.needs())
        # The mask of windows says what is before a query.
        compressed = spec._replace(causal=False, needs=(PAIRS, OTHER_KEYS))
        return [compressed if number % 2 else local for number in range(self.layers)]

    def make_attention(self, spec):
        is_compressed = OTHER_KEYS in spec.needs
        kind = attention.CompressedAttention if is_compressed else attention.BlockAttention
        return kind(self.heads, spec, self.options, parent=None)

    def make_inputs(self, mask, positions):
        arrays = mask.query_ids, positions
        local = attention.local_blocks(*arrays, self.block, is_packed=self.sequences != 1)
        windows = attention.make_windows(*arrays, self.compression)
        result = []
        for number, inputs in enumerate(super().make_inputs(mask, positions)):
            if number % 2:
                compressed = attention.compressed_mask(inputs.mask, windows)
                inputs = inputs._replace(mask=compressed, extra=windows.places)
            else:
                inputs = inputs._replace(extra=local)
            result.append(inputs)
        return result


def make(config, vocabulary_size, **fields):
    return gpt.make(config, vocabulary_size, Long, **fields)
