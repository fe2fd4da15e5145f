"""Recurrent translators: an encoder and a decoder of GRUs or LSTMs, with or without attention.

A layer of the decoder begins with the last states of that layer of the encoder. Without attention, it sees nothing else
of the source (Sutskever et al., arXiv:1409.3215).

Source, target and logits share one table of word embeddings. A network reads the arrays of models/transformer.py.

B batch, L length of the source, T length of the target, D width, V padded vocabulary, N hypotheses of a row.
"""

import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import PartitionSpec
from recurrent import attention, cells
from recurrent.attention import Attention, Options, Places
from recurrent.decoder import LOGITS, Decoder, first_carry
from recurrent.encoder import Encoder, Sizes, last_states

from bert_jax.checks import check_keys, require
from bert_jax.layers import pooling
from bert_jax.layers.blocks import LayerOptions
from bert_jax.layers.decoding import BranchedCache
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.embeddings import Embedder
from bert_jax.layers.heads import Head
from bert_jax.models import transformer

DEFAULTS = {
    "layers": 1,  # of the encoder, and of the decoder
    "width": 256,  # size of the states of both; even
    "cell": "gru",  # gru or lstm, see cells.py
    # how the decoder scores the states of the source, see attention.py: dot, general, additive, location, cosine; or
    # none: it sees the encoder's last state alone
    "score": "additive",
    "reach": "global",  # how much of the source it sees: global, local_m, local_p
    "window": 4,  # tokens to each side of the center of a local reach
    "input_feeding": True,  # whether attention in a step is an input of the next one; never with score=none
    "max_length": 256,  # no side of a row may be longer; with score=location the positions that have scores
    "dropout": 0.2,  # dropout rate on embeddings, between layers, and in front of the logits
    "initializer": 0.0,  # standard deviation of the truncated normal initializer; 0: the root of 1 / width
}
BODY = transformer.BODY
FRAME = transformer.FRAME
TARGET_FRAME = transformer.TARGET_FRAME
RULES = ((r"(input|recurrent|feed)/kernel$", PartitionSpec("fsdp", None)),)


def check(config):
    model = config.model
    choices = {
        "model.cell": cells.KINDS,
        "model.score": (attention.NONE, *attention.SCORES),
        "model.reach": attention.REACHES,
    }
    check_keys(
        config,
        choices=choices,
        shares=["model.dropout"],
        at_least_one=["model.layers", "model.width", "model.window", "model.max_length"],
        not_negative=["model.initializer"],
    )
    require(model.width % 2 == 0, "model.width", config, "expected an even number")
    is_lm = config.objective.name in ("mlm", "causal_lm")
    hint = "recurrent.model reads a source and a target; use translation"
    require(not is_lm, "objective.name", config, hint)
    hint = f"expected at most model.max_length={model.max_length}"
    for name, phase in config.phases.items():
        require(phase.length <= model.max_length, f"phases.{name}.length", config, hint)


class Recurrent(nn.Module):
    """The encoder and the decoder."""

    encoder: Encoder
    decoder: Decoder
    causal = False  # as to the source

    @property
    def layers(self) -> int:
        """The layers of `states`."""
        return self.encoder.sizes.layers

    @property
    def head(self) -> Head:
        sizes = self.encoder.sizes
        initializer = sizes.initializer
        options = LayerOptions(
            activation="relu",
            initializer=initializer,
            out_initializer=initializer,
            epsilon=1e-5,
            gradient_dtype=sizes.gradient_dtype,
            bias=True,
        )
        vocabulary = self.encoder.embedder.vocabulary_size
        return Head(vocabulary, sizes.width, options, has_dense=False, has_bias=False)

    def states(self, batch, keys=None) -> list:
        """Returns the encoder's states [B, L, D] of the embeddings and of each layer."""
        return self.encoder(batch, keys)[0]

    def summary(self, x, batch):
        """Returns [B, S, D]: the mean of the source's vectors."""
        return pooling.reduce(x, batch, "mean")

    def __call__(self, batch, keys=None):
        """Returns the vectors [B, T, D] at the tokens of the target, which their logits are computed from."""
        states, directions = self.encoder(batch, keys)
        source = Places(batch["sequence_ids"], batch["positions"])
        places = Places(batch["target_sequence_ids"], batch["target_positions"])
        starts = last_states(directions, source.ids, places.ids)
        memory = self.decoder.memorize(states[-1], source)
        x = self.encoder.embed(batch["target_tokens"], keys, transformer.DECODER)
        vectors = self.decoder(x, starts, places, memory, keys)
        return maybe_dropout(vectors, keys, LOGITS, self.encoder.sizes.dropout)

    def vocabulary_logits(self, x):
        """Returns float32 logits [..., V] of x[..., D] by the word embeddings."""
        return self.encoder.vocabulary_logits(x)

    def start(self, batch, length: int) -> BranchedCache:
        """Returns the cache of a target without tokens; see decoding.py. It needs no room for tokens."""
        states, directions = self.encoder(batch)
        source = Places(batch["sequence_ids"], batch["positions"])
        memory = self.decoder.memorize(states[-1], source)
        starts = last_states(directions, source.ids, jnp.ones_like(source.ids[:, :1]))
        position = jnp.zeros(len(source.ids), jnp.int32)
        carry = first_carry(self.encoder.sizes, starts)
        return BranchedCache((source, memory), (carry, position))

    def step(self, tokens, cache: BranchedCache) -> tuple:
        """Returns float32[B N, V], the logits after one more token int32[B N] of each target, and the cache with it."""
        (source, memory), (carry, position) = cache
        positions = position.reshape(len(source.ids), -1)
        places = Places(jnp.ones_like(positions), positions)
        x = self.encoder.embed(tokens[:, None], None)[:, 0]
        vectors, carry = self.decoder.step(x, carry, places, memory)
        cache = BranchedCache((source, memory), (carry, position + 1))
        return self.vocabulary_logits(vectors), cache


def make(config, vocabulary_size: int, **fields) -> Recurrent:
    """Returns the network of a config. fields: those of attention of Transformers, which it does not read."""
    model = config.model
    initializer = model.initializer or model.width**-0.5
    dtype = jnp.dtype(config.dtype)
    gradient_dtype = jnp.dtype(config.gradient_dtype)
    options = None
    context = None
    if model.score != attention.NONE:
        options = Options(model.score, model.reach, model.window, gradient_dtype)
        context = Attention(options, model.width, model.max_length, initializer)
    sizes = Sizes(
        layers=model.layers,
        width=model.width,
        cell=model.cell,
        input_feeding=model.input_feeding and options is not None,
        dropout=model.dropout,
        initializer=initializer,
        dtype=dtype,
        gradient_dtype=gradient_dtype,
        attention=options,
    )
    embedder = Embedder(
        vocabulary_size=vocabulary_size,
        max_length=0,  # neither positions nor segments have embeddings
        type_vocabulary=0,
        width=model.width,
        initializer=initializer,
        gradient_dtype=gradient_dtype,
        dtype=dtype,
    )
    return Recurrent(Encoder(embedder, sizes), Decoder(sizes, context))
