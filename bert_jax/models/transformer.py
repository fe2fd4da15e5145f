"""The Transformer (arXiv:1706.03762): an encoder and a decoder, which attends to the encoder's states, too.

B batch, L length of the source, T length of the target, D width, V padded vocabulary. Source, target and logits share
one table of word embeddings. A network reads, besides the source in the arrays of the batch contract,

    target_tokens           int32[B, T]    the begin token, the target, the end token
    target_positions        int32[B, T]    restart in every packed pair
    target_sequence_ids     int32[B, T]    those of the source: a pair sees only itself
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.checks import require
from bert_jax.layers import network, pooling
from bert_jax.layers.attention_spec import Branches, Mask, Spec, empty_cache
from bert_jax.layers.blocks import Block, Dropouts, Inputs, apply_blocks
from bert_jax.layers.decoding import BranchedCache
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.heads import Head
from bert_jax.layers.norm import LayerNorm
from bert_jax.layers.positions import sinusoids

DEFAULTS = {
    "layers": 6,  # blocks of the encoder
    "decoder_layers": 6,  # blocks of the decoder
    "width": 512,  # size of the hidden states; a multiple of `heads`
    "heads": 8,  # attention heads
    "feed_forward": 2048,  # size of the feed-forward layers; 0: four times the width
    "max_length": 1024,  # no side of a row may be longer; positions are sines and cosines
    "dropout": 0.1,  # dropout rate on embeddings and on the output of each layer
    "attention_dropout": 0.0,  # dropout rate on attention probabilities
    "hidden_dropout": 0.0,  # dropout rate on the hidden layer of feed-forward layers
    # implementation of attention in a sequence, as for model.name=bert; to the source, auto unless it is xla
    "attention": "auto",
    "activation": "relu",  # relu, gelu or gelu_tanh
    "norm": "post",  # what layer norms normalize: post (the sum of a layer and its input) or pre (the input)
    "epsilon": 1e-5,  # epsilon of layer norms
    "initializer": 0.0,  # standard deviation of the truncated normal initializer; 0: the root of 1 / width
}
BODY = ("encoder", "decoder")
FRAME = "| | sep"  # of a source
TARGET_FRAME = "cls | | sep"
DECODER = 1 << 12  # number of the decoder's first dropout keys; those of the encoder are smaller


class Encoder(network.Network, kw_only=True):
    """The encoder: rows of the source to hidden states. It has the word embeddings."""

    hidden_dropout: float
    positions: str = "sinusoids"

    @property
    def dropouts(self) -> Dropouts:
        return Dropouts(self.dropout, self.dropout, self.hidden_dropout, self.dropout)

    def embed(self, batch, keys=None):
        return self.embed_tokens(batch["tokens"], batch["positions"], keys)

    def embed_tokens(self, tokens, positions, keys, number: int = 0):
        """Returns [B, L, D] in `dtype`: word embeddings times the root of the width, and positions.

        keys: uint32[B], of dropout, or None. number: distinguishes its draws.
        """
        x = self.embedder(tokens, positions, None) * self.width**0.5
        x += sinusoids(positions, self.width)
        return maybe_dropout(x.astype(self.dtype), keys, number, self.dropout)


class Decoder(nn.Module):
    """The decoder: embeddings of the target to hidden states."""

    blocks: list[Block]
    final_norm: LayerNorm | None

    def __call__(self, x, keys, inputs: list[Inputs]) -> tuple:
        """Returns the hidden states [B, T, D] of the last layer, and the caches with the tokens of x."""
        parts = self.blocks, x, keys, inputs, self.final_norm
        states, caches = apply_blocks(*parts, first=DECODER + 1)
        return states[-1], caches

    def memorize(self, states) -> list:
        """Returns each block's keys and values of the source's states."""
        return [block.memorize(states) for block in self.blocks]


class Transformer(nn.Module):
    """The encoder and the decoder."""

    encoder: Encoder
    decoder_layers: int
    causal = False  # as to the source

    @property
    def layers(self) -> int:
        """The blocks of `states`."""
        return self.encoder.layers

    @property
    def head(self) -> Head:
        return self.encoder.head._replace(has_dense=False, has_bias=False)

    @property
    def spec(self) -> Spec:
        """That of attention in the target."""
        return self.encoder.specs[0]._replace(causal=True)

    @property
    def specs(self) -> list[Spec]:
        """Those of attention in the source, in the target, and of the target to the source."""
        return [*self.encoder.specs, self.spec, self.spec.to_context()]

    def setup(self):
        sizes = self.encoder
        specs = [self.spec] * self.decoder_layers
        final_norm = LayerNorm(sizes.epsilon, parent=None) if sizes.norm == "pre" else None
        self.decoder = Decoder(
            sizes.make_blocks(specs, sizes.dropouts, has_context=True), final_norm
        )

    def states(self, batch, keys=None) -> list:
        """Returns the encoder's hidden states of the source, see `Encoder.states`."""
        return self.encoder.states(batch, keys)

    def summary(self, x, batch):
        """Returns [B, S, D]: the mean of the source's vectors."""
        return pooling.reduce(x, batch, "mean")

    def __call__(self, batch, keys=None):
        """Returns the hidden states [B, T, D] at the tokens of the target."""
        states = self.encoder(batch, keys)
        ids = batch["target_sequence_ids"]
        tokens = batch["target_tokens"]
        x = self.encoder.embed_tokens(tokens, batch["target_positions"], keys, DECODER)
        context = Inputs(Mask(ids, batch["sequence_ids"]), states)
        inputs = [Inputs(Mask(ids), context=context)] * self.decoder_layers
        return self.decoder(x, keys, inputs)[0]

    def vocabulary_logits(self, x):
        """Returns float32 logits [..., V] of x[..., D] by the word embeddings."""
        return self.encoder.vocabulary_logits(x)

    def start(self, batch, length: int):
        """Returns the cache of a target without tokens, with room for `length` of them; see decoding.py."""
        source_ids = batch["sequence_ids"]
        memories = self.decoder.memorize(self.encoder(batch))
        rows = len(source_ids)
        cache = empty_cache(rows, length, self.encoder.heads, self.spec, self.encoder.dtype)
        branches = Branches(jnp.zeros((rows, length), bool), jnp.zeros(rows, jnp.int32))
        return BranchedCache((source_ids, memories, [cache] * self.decoder_layers), branches)

    def step(self, tokens, cache):
        """Returns float32[B N, V], the logits after one more token int32[B N] of each target, and the cache with it."""
        (source_ids, memories, caches), branches = cache
        mask, branches = branches.append(caches[0].position)
        tokens = tokens.reshape(len(source_ids), -1)
        x = self.encoder.embed_tokens(tokens, mask.positions[0], None)
        context_mask = Mask(jnp.ones_like(tokens), source_ids)
        inputs = [
            Inputs(mask, context=Inputs(context_mask, memory), cache=cache)
            for memory, cache in zip(memories, caches, strict=True)
        ]
        x, caches = self.decoder(x, None, inputs)
        logits = self.vocabulary_logits(x.reshape(-1, x.shape[-1]))
        return logits, BranchedCache((source_ids, memories, caches), branches)


def make(config, vocabulary_size: int, **fields) -> Transformer:
    """Returns the network of a config; see `network.make`."""
    config = config.copy_and_resolve_references()
    model = config.model
    model.initializer = model.initializer or model.width**-0.5
    return Transformer(
        network.make(Encoder, config, vocabulary_size, **fields), model.decoder_layers
    )


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    network.check(config)
    is_lm = config.objective.name in ("mlm", "causal_lm")
    hint = "model.name='transformer' reads a source and a target; use translation"
    require(not is_lm, "objective.name", config, hint)
