"""A small encoder-decoder: BERT's encoder, and pre-norm blocks that attend to its states, too."""

from functools import partial

import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.config_checks import check_keys
from bert_jax.layers.attention_spec import Context, Mask, Spec, empty_cache
from bert_jax.layers.blocks import Block, Dropouts, LayerOptions
from bert_jax.layers.norm import LayerNorm
from bert_jax.models import bert

DEFAULTS = bert.DEFAULTS | {"decoder_layers": 2}
BODY = ("encoder", "decoder")
TAKES = {"bert": {"": "encoder"}}
FIRST_DECODER_LAYER = 1000  # number of its dropout keys; those of the encoder's layers are smaller


def check(config):
    bert.check(config)
    check_keys(config, at_least_one=["model.decoder_layers"])


class Decoder(nn.Module):
    layers: int
    heads: int
    spec: Spec
    options: LayerOptions
    dropout: float

    def setup(self):
        hidden = 2 * self.heads * self.spec.head_size
        dropouts = Dropouts(attention=self.dropout, context=self.dropout)
        make_block = partial(Block, self.heads, hidden, self.spec, self.options, dropouts, "pre")
        self.blocks = [make_block() for _ in range(self.layers)]
        self.final_norm = LayerNorm(self.options.epsilon)

    def __call__(self, x, mask, contexts, keys=None, caches=None):
        longer = []
        for number, block in enumerate(self.blocks):
            layer = jnp.uint32(FIRST_DECODER_LAYER + number)
            layer_keys = None if keys is None else prng.fold(keys, layer)
            cache = None if caches is None else caches[number]
            x, cache = block(x, mask, layer_keys, contexts[number], cache)
            longer.append(cache)
        return self.final_norm(x), longer

    def memorize(self, states):
        return [block.memorize(states) for block in self.blocks]


class Network(nn.Module):
    encoder: nn.Module
    layers: int

    def setup(self):
        sizes = self.encoder
        spec = sizes.make_spec()._replace(causal=True)
        self.decoder = Decoder(self.layers, sizes.heads, spec, sizes.options, sizes.dropout)

    def embed(self, tokens, positions):
        return self.encoder.embedder(tokens, positions, jnp.zeros_like(tokens))

    def logits(self, x):
        return self.encoder.vocabulary_logits(x)

    def __call__(self, batch, keys=None):
        """Returns [B, T, D], the states at the tokens of the target."""
        states = self.encoder(batch, keys)
        x = self.embed(batch["target_tokens"], batch["target_positions"])
        ids = batch["target_sequence_ids"]
        context = Context(states, Mask(ids, batch["sequence_ids"]))
        return self.decoder(x, Mask(ids), [context] * self.layers, keys)[0]

    def start(self, batch):
        source_ids = batch["sequence_ids"]
        rows, length = batch["target_tokens"].shape
        spec = self.encoder.make_spec()
        cache = empty_cache(rows, length, self.encoder.heads, spec, self.encoder.dtype)
        memories = self.decoder.memorize(self.encoder(batch))
        return source_ids, memories, [cache] * self.layers

    def step(self, tokens, cache):
        source_ids, memories, caches = cache
        mask = caches[0].mask(1)
        x = self.embed(tokens[:, None], mask.positions[0])
        context_mask = Mask(jnp.ones_like(tokens[:, None]), source_ids)
        contexts = [Context(memory, context_mask) for memory in memories]
        x, caches = self.decoder(x, mask, contexts, caches=caches)
        return self.logits(x[:, 0]), (source_ids, memories, caches)


def make(config, vocabulary_size, **fields):
    encoder = bert.make(config, vocabulary_size, **fields)
    return Network(encoder, config.model.decoder_layers)
