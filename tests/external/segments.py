"""A causal decoder with relative positions that reads a row in segments, each with a memory of the states in front of
it, as Transformer-XL does (arXiv:1901.02860). Gradients flow into the memory.

B batch, L length of a segment, M length of memory and segment, D width.
"""

import jax.numpy as jnp
from external import decoder, relative

from bert_jax import prng
from bert_jax.checks import check_keys
from bert_jax.layers import network
from bert_jax.layers.attention_spec import Mask
from bert_jax.layers.blocks import Inputs

DEFAULTS = decoder.DEFAULTS | {
    "segment": 8,  # tokens of a segment
    "memory": 8,  # tokens in front of a segment whose states it reads
    "reach": 4,  # keys that are farther away have the relative position of this distance
}
RULES = relative.RULES
DECAY = relative.DECAY


def check(config):
    decoder.check(config)
    check_keys(config, at_least_one=["model.segment", "model.reach"])


class Decoder(decoder.Decoder, kw_only=True):
    segment: int
    memory: int
    reach: int
    positions: str = "relative"
    attention_type = relative.Attention

    def make_attention(self, spec):
        return super().make_attention(spec, reach=self.reach)

    def states(self, batch, keys=None):
        """Does what that of the base class does, if the memory has all tokens in front of each segment."""
        x = self.embed(batch, keys)
        ids = batch["sequence_ids"]
        places = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        states = [x[:, :0]] * (self.layers + 1)
        for start in range(0, x.shape[1], self.segment):
            part = slice(start, start + self.segment)
            seen = slice(max(0, start - self.memory), start + self.segment)
            positions = places[:, part], places[:, seen]
            mask = Mask(ids[:, part], ids[:, seen], positions=positions)
            memories = [layer[:, seen] for layer in states]
            segment_keys = None if keys is None else prng.fold(keys, jnp.uint32(1 + start))
            new = self.read_segment(x[:, part], memories, mask, segment_keys)
            states = [jnp.concatenate(parts, axis=1) for parts in zip(states, new, strict=True)]
        return [*states[:-1], self.final_norm(states[-1])]

    def read_segment(self, x, memories, mask, keys):
        """Returns the states [B, L, D] of a segment, x and those of each layer. memories: [B, M - L, D] of each."""
        states = [x]
        for number, (block, memory) in enumerate(zip(self.blocks, memories, strict=False), 1):
            block_keys = None if keys is None else prng.fold(keys, jnp.uint32(number))
            source = jnp.concatenate([memory, x], axis=1)
            x, _ = block(x, Inputs(mask, source), block_keys)
            states.append(x)
        return states


def make(config, vocabulary_size, **fields):
    return network.make(Decoder, config, vocabulary_size, **fields | {"causal": True})
