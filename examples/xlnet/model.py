"""XLNet (arXiv:1906.08237): a Transformer with relative positions whose tokens are predicted in any order.

The content stream h has the states of all tokens, the query stream g those of the places to predict. A layer is applied
to both, with the content stream as keys and values: a token sees itself and those before it in the order, a query only
these. So g knows where it is, and not what is there. In use, h sees all tokens.

    g <- layer(queries of g, keys and values of h)      h <- layer(h)

Tokens of one segment and of two have a term each in the scores: the segments themselves have no meaning.

B batch, L length, P predictions, S packed sequences per row, T tokens in memory, M = T + L keys, D width, H heads, K
head size.
"""

from functools import partial

import jax.numpy as jnp
from jax.sharding import PartitionSpec
from xlnet import exchange, relative

from bert_jax import prng
from bert_jax.checks import require
from bert_jax.layers import network, pooling
from bert_jax.layers.attention_spec import Mask
from bert_jax.layers.blocks import Inputs, apply_blocks
from bert_jax.layers.dense import Dense, truncated_normal

DEFAULTS = {
    "layers": 12,  # Transformer blocks
    "width": 768,  # size of the hidden states; a multiple of `heads`, and even
    "heads": 12,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layers; 0: four times the width
    "max_length": 512,  # no row may be longer
    "type_vocabulary": 3,  # segments: those of two texts, and that of [CLS]; none has an embedding
    # dropout rate on embeddings, distances, outputs and hidden layers of all layers, and the states that logits are
    # computed from
    "dropout": 0.1,
    "attention": "auto",  # implementation of attention; only xla, or auto, has relative positions
    "attention_dropout": 0.1,  # dropout rate on attention probabilities
    "activation": "gelu",  # gelu_tanh, gelu or relu
    "epsilon": 1e-12,  # epsilon of layer norms
    "initializer": 0.02,  # standard deviation of the weights
}
FRAME = "| sep | sep cls:2"
RULES = (
    *relative.RULES,
    (r"segment_keys$", PartitionSpec(None, "tensor")),
    (r"mask_embedding$", PartitionSpec()),
)
DECAY = (*relative.DECAY, (r"(segment_keys|mask_embedding)$", True))
ARCHITECTURE = exchange.XLNET
QUERIES = 1 << 13  # number of the dropout keys of the query stream; those of layers are smaller


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    relative.check(config)
    is_valid = config.model.type_vocabulary >= 3
    require(is_valid, "model.type_vocabulary", config, "expected at least 3: [CLS] has segment 2")
    hint = "model.name='xlnet.model' continues no texts; use xlnet.objective or a task"
    require(config.objective.name != "causal_lm", "objective.name", config, hint)


class Attention(relative.Attention):
    """Attention with a term of segments: (q + s) e, where e is the embedding of `same` or `other`."""

    def setup(self):
        super().setup()
        shape = 2, self.heads, self.spec.head_size
        init = truncated_normal(self.options.initializer)
        self.segment_keys = self.param("segment_keys", init, shape)
        self.segment_bias = self.make_bias("segment_bias")

    def bias(self, q_BLHK, k_BMHK, inputs):
        bias = super().bias(q_BLHK, k_BMHK, inputs)
        queries, keys = inputs.extra.segments
        terms = jnp.einsum("blhk,shk->sbhl", q_BLHK.astype(jnp.float32), self.segment_keys)
        biases = jnp.einsum("hk,shk->sh", self.scaled(self.segment_bias), self.segment_keys)
        same, other = (terms + biases[:, None, :, None])[..., None]
        is_same = (queries[:, :, None] == keys[:, None])[:, None]
        return bias + jnp.where(is_same, same, other)


class XLNet(relative.Network, kw_only=True):
    """Rows of tokens to hidden states."""

    attention_type = Attention

    def setup(self):
        super().setup()
        init = truncated_normal(self.initializer)
        self.mask_embedding = self.param("mask_embedding", init, (self.width,))
        self.pooler = Dense(self.width, self.initializer, self.gradient_dtype)

    def states(self, batch, keys=None) -> list:
        """Returns the states [B, L, D] of the embeddings and each layer; every token sees all of its sequence."""
        ids = batch["sequence_ids"]
        waves = self.waves(ids.shape[1], None if keys is None else batch["step_key"])
        segments = batch["segments"], batch["segments"]
        inputs = Inputs(Mask(ids), extra=relative.Distances(waves, segments=segments))
        x = self.embed(batch, keys)
        return apply_blocks(self.blocks, x, keys, [inputs] * self.layers)[0]

    def predict(self, batch, keys=None, memories=None):
        """Returns [B, P, D]: the last states of the query stream, at `masked_positions`.

        memories: [B, T, D] of each layer, the states of tokens in front of the rows, which are in segment 0 and which
            every token sees; None: none.
        """
        g, _ = self.streams(batch, keys, memories)
        return self.drop_output(g, keys)

    def streams(self, batch, keys=None, memories=None) -> tuple:
        """Returns the last states of the query stream, [B, P, D], and those of the contents that the last layer reads,
        [B, L, D]. Arguments as in `predict`."""
        of_g, of_h = self.stream_inputs(batch, keys, memories)
        h = self.embed(batch, keys)
        g_keys = None if keys is None else prng.fold(keys, jnp.uint32(QUERIES))
        shape = *batch["masked_positions"].shape, self.width
        g = self.enter(jnp.broadcast_to(self.mask_embedding, shape), g_keys)
        for number, block in enumerate(self.blocks):
            source = h
            if memories is not None:
                source = jnp.concatenate([memories[number], h], axis=1)
            apply = partial(apply_blocks, [block], first=number + 1)
            (_, g), _ = apply(g, g_keys, [of_g._replace(source=source)])
            if number + 1 < self.layers:
                (_, h), _ = apply(h, keys, [of_h._replace(source=source)])
        return g, h

    def stream_inputs(self, batch, keys, memories) -> tuple[Inputs, Inputs]:
        """Returns the inputs of the layers of the query stream and of the content stream, without a source."""
        ranks = batch["ranks"]
        places = batch["masked_positions"]
        ids = batch["sequence_ids"]
        size = 0 if memories is None else memories[0].shape[1]

        def at_places(x):
            return jnp.take_along_axis(x, places, axis=1)

        def behind_memory(x, value):
            """Puts the values of a memory in front of those of a row, along the last axis."""
            widths = [(0, 0)] * (x.ndim - 1) + [(size, 0)]
            return jnp.pad(x, widths, constant_values=value)

        key_ids = behind_memory(ids, 1)
        key_segments = behind_memory(batch["segments"], 0)
        key_positions = jnp.broadcast_to(jnp.arange(key_ids.shape[1]), key_ids.shape)
        waves = self.waves(key_ids.shape[1], None if keys is None else batch["step_key"])
        is_earlier = ranks[:, None] < at_places(ranks)[..., None]
        of_g = Inputs(
            Mask(at_places(ids), key_ids, pairs=behind_memory(is_earlier, True)),
            extra=relative.Distances(
                waves,
                (size + places, key_positions),
                (at_places(batch["segments"]), key_segments),
            ),
        )
        is_seen = ranks[:, None] <= ranks[..., None]
        of_h = Inputs(
            Mask(ids, key_ids, pairs=behind_memory(is_seen, True)),
            extra=relative.Distances(waves, segments=(batch["segments"], key_segments)),
        )
        return of_g, of_h

    def summary(self, x, batch):
        """Returns [B, S, D]: the vector of the last token of each sequence after a dense layer and tanh."""
        return jnp.tanh(self.pooler(pooling.reduce(x, batch, "last")))


def make(config, vocabulary_size: int, **fields) -> XLNet:
    """Returns the network of a config; see `network.make`."""
    config = config.copy_and_resolve_references()
    config.model.type_vocabulary = 0
    return network.make(XLNet, config, vocabulary_size, **fields)
