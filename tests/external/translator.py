"""A small encoder-decoder: BERT's encoder, and pre-norm blocks that attend to its states, too."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.checks import check_keys
from bert_jax.layers import blocks
from bert_jax.layers.attention_spec import Mask, empty_cache
from bert_jax.layers.blocks import Dropouts, Inputs
from bert_jax.layers.norm import LayerNorm
from bert_jax.models import bert

DEFAULTS = bert.DEFAULTS | {"decoder_layers": 2}
BODY = ("encoder", "decoder")
TAKES = {"bert": {"": "encoder"}}
FIRST = 1000  # number of its dropout keys; those of the encoder's layers are smaller


def check(config):
    bert.check(config)
    check_keys(config, at_least_one=["model.decoder_layers"])


class Decoder(nn.Module):
    blocks: list
    final_norm: nn.Module

    def __call__(self, x, keys, inputs):
        parts = self.blocks, x, keys, inputs, self.final_norm
        states, caches = blocks.apply_blocks(*parts, first=FIRST)
        return states[-1], caches

    def memorize(self, states):
        return [block.memorize(states) for block in self.blocks]


class Translator(nn.Module):
    encoder: nn.Module
    layers: int

    def setup(self):
        sizes = self.encoder.clone(norm="pre", parent=None)
        specs = [sizes.make_spec()._replace(causal=True)] * self.layers
        dropouts = Dropouts(attention=sizes.dropout, context=sizes.dropout)
        parts = sizes.make_blocks(specs, dropouts, has_context=True)
        self.decoder = Decoder(parts, LayerNorm(1e-5, parent=None))

    def embed(self, tokens, positions):
        return self.encoder.embedder(tokens, positions, jnp.zeros_like(tokens))

    def vocabulary_logits(self, x):
        return self.encoder.vocabulary_logits(x)

    def __call__(self, batch, keys=None):
        """Returns [B, T, D], the states at the tokens of the target."""
        states = self.encoder(batch, keys)
        x = self.embed(batch["target_tokens"], batch["target_positions"])
        ids = batch["target_sequence_ids"]
        context = Inputs(Mask(ids, batch["sequence_ids"]), states)
        inputs = [Inputs(Mask(ids), context=context)] * self.layers
        return self.decoder(x, keys, inputs)[0]

    def start(self, batch, length):
        source_ids = batch["sequence_ids"]
        rows = len(source_ids)
        spec = self.encoder.make_spec()
        cache = empty_cache(rows, length, self.encoder.heads, spec, self.encoder.dtype)
        memories = self.decoder.memorize(self.encoder(batch))
        return source_ids, memories, [cache] * self.layers

    def step(self, tokens, cache):
        """A beam search copies and selects the whole cache."""
        source_ids, memories, caches = cache
        mask = caches[0].mask(1)
        x = self.embed(tokens[:, None], mask.positions[0])
        context_mask = Mask(jnp.ones_like(tokens[:, None]), source_ids)
        inputs = [
            Inputs(mask, context=Inputs(context_mask, memory), cache=cache)
            for memory, cache in zip(memories, caches, strict=True)
        ]
        x, caches = self.decoder(x, None, inputs)
        return self.vocabulary_logits(x[:, 0]), (source_ids, memories, caches)


def make(config, vocabulary_size, **fields):
    encoder = bert.make(config, vocabulary_size, **fields)
    return Translator(encoder, config.model.decoder_layers)
