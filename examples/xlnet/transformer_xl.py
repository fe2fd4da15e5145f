"""Transformer-XL (arXiv:1901.02860): a causal network that reads a row in segments, with a memory between them.

The layers of a segment attend to it, and to the states that the `memory` tokens in front of it had in the layer below.
No gradient flows into the memory, which is empty at the beginning of a row. A token that continues a text sees as many
tokens in front of it as a segment and its memory have.

B batch, L tokens of a row, S tokens of a segment, T tokens in memory, D width.
"""

import jax
import jax.numpy as jnp
from xlnet import relative

from bert_jax import prng
from bert_jax.checks import check_keys, require
from bert_jax.layers import network, pooling
from bert_jax.layers.attention_spec import Mask
from bert_jax.layers.blocks import Inputs, apply_blocks

DEFAULTS = {
    "layers": 12,  # Transformer blocks
    "width": 512,  # size of the hidden states; a multiple of `heads`, and even
    "heads": 8,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layers; 0: four times the width
    "max_length": 4096,  # no row may be longer
    "segment": 512,  # tokens of a segment
    "memory": 512,  # tokens in front of a segment whose states its layers read
    "evaluation_memory": -1,  # the same in use; -1: as in training
    "clamp": 0,  # larger distances count as this one; 0: none
    "dropout": 0.1,  # dropout rate on embeddings, distances, outputs and hidden layers of all layers, and last states
    "attention": "auto",  # implementation of attention; only xla, or auto, has relative positions
    "attention_dropout": 0.0,  # dropout rate on attention probabilities
    "activation": "relu",  # gelu_tanh, gelu or relu
    "epsilon": 1e-5,  # epsilon of layer norms
    "initializer": 0.02,  # standard deviation of the weights
}
RULES = relative.RULES
DECAY = relative.DECAY
SEGMENT = 1 << 13  # number of the dropout keys of the first segment; those of layers are smaller


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    relative.check(config)
    check_keys(
        config,
        at_least_one=["model.segment"],
        not_negative=["model.memory", "model.clamp"],
    )
    is_valid = config.model.evaluation_memory >= -1
    require(is_valid, "model.evaluation_memory", config, "expected -1 or more")
    hint = "model.name='xlnet.transformer_xl' sees no later token; use causal_lm"
    require(config.objective.name != "mlm", "objective.name", config, hint)


class TransformerXL(relative.Network, kw_only=True):
    """Rows of tokens to hidden states, of which each depends on no later token."""

    segment: int
    memory: int
    evaluation_memory: int

    def embeddings(self, batch):
        return super().embeddings(batch) * self.width**0.5

    def summary(self, x, batch):
        """Returns [B, S, D]: the vector of the last token of each sequence."""
        return pooling.reduce(x, batch, "last")

    @property
    def memory_in_use(self) -> int:
        return self.memory if self.evaluation_memory < 0 else self.evaluation_memory

    def make_inputs(self, mask: Mask, positions) -> list[Inputs]:
        """Returns the inputs of the layers for tokens behind those of a cache."""
        queries, keys = mask.positions
        is_near = queries[:, :, None] - keys[:, None] < self.segment + self.memory_in_use
        if mask.pairs is not None:
            is_near &= mask.pairs
        extra = relative.Distances(self.waves(keys.shape[1]), mask.positions)
        return [Inputs(mask._replace(pairs=is_near), extra=extra)] * self.layers

    def states(self, batch, keys=None) -> list:
        """Returns the states [B, L, D] of the embeddings and each layer."""
        is_trained = keys is not None
        size = self.memory if is_trained else self.memory_in_use
        x = self.embed(batch, keys)
        ids = batch["sequence_ids"]
        memories = [x[:, :0]] * self.layers
        parts = []
        for number, start in enumerate(range(0, x.shape[1], self.segment)):
            inside = slice(start, start + self.segment)
            seen = slice(start - memories[0].shape[1], start + self.segment)
            waves = self.waves(ids[:, seen].shape[1], batch["step_key"] if is_trained else None)
            mask = consecutive(ids[:, inside], ids[:, seen])
            inputs = Inputs(mask, extra=relative.Distances(waves))
            segment_keys = prng.fold(keys, jnp.uint32(SEGMENT + number)) if is_trained else None
            states = self.read_segment(x[:, inside], memories, inputs, segment_keys)
            parts.append(states)
            pairs = zip(memories, states[:-1], strict=True)
            memories = [remember(memory, state, size) for memory, state in pairs]
        return [jnp.concatenate(states, axis=1) for states in zip(*parts, strict=True)]

    def read_segment(self, x, memories: list, inputs: Inputs, keys) -> list:
        """Returns the states [B, S, D] of a segment, x and those of each layer.

        memories: [B, T, D] of each layer.
        """
        states = [x]
        for number, (block, memory) in enumerate(zip(self.blocks, memories, strict=True)):
            source = jnp.concatenate([memory, x], axis=1)
            of_layer = [inputs._replace(source=source)]
            (_, x), _ = apply_blocks([block], x, keys, of_layer, first=number + 1)
            states.append(x)
        return states


def consecutive(query_ids, key_ids) -> Mask:
    """Returns the mask of queries int32[B, S] and keys int32[B, T + S] whose last ones are the same."""
    keys = jnp.broadcast_to(jnp.arange(key_ids.shape[1]), key_ids.shape)
    queries = keys[:, key_ids.shape[1] - query_ids.shape[1] :]
    return Mask(query_ids, key_ids, positions=(queries, keys))


def remember(memory, states, size: int):
    """Returns [B, at most size, D]: the last of a memory [B, T, D] and states [B, S, D] behind it, without
    gradients."""
    x = jnp.concatenate([memory, states], axis=1)
    return jax.lax.stop_gradient(x[:, max(0, x.shape[1] - size) :])


def make(config, vocabulary_size: int, **fields) -> TransformerXL:
    """Returns the network of a config; see `network.make`."""
    return network.make(TransformerXL, config, vocabulary_size, **fields | {"causal": True})
