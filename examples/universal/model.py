"""The Universal Transformer (arXiv:1807.03819): an encoder and a decoder of one block each, applied again and again.

Before each pass, the position and the number of the pass are added to the state, as sines and cosines. With `halting`,
each token has as many passes as it needs (act.py), at most twice `layers`, and its last state is the weighted sum of
those after each pass. A token that has halted is still read, with the states of its further passes, as in
tensor2tensor; in the paper its state is copied instead.

B batch, L length of the source, T length of the target, D width, N passes.
"""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from universal import act

from bert_jax import prng
from bert_jax.checks import check_keys, require
from bert_jax.layers import network
from bert_jax.layers.attention_spec import Mask
from bert_jax.layers.blocks import Inputs
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.positions import sinusoids
from bert_jax.models import transformer

DEFAULTS = transformer.DEFAULTS | {
    "layers": 3,  # passes of the encoder without `halting`; with it at most twice as many
    "decoder_layers": 3,  # those of the decoder
    "shared": True,  # whether all passes have the weights of one block
    "halting": True,  # whether each token decides how many passes it has
    # in training, the positions of each row begin at a random number below this one, so that a network which is trained
    # on short texts has seen the positions of long ones; 0: at 0, as in use
    "offsets": 0,
}
BODY = transformer.BODY
FRAME = transformer.FRAME
TARGET_FRAME = transformer.TARGET_FRAME
# Of the logit of halting: a token begins with four passes. With 1, as in tensor2tensor, all tokens of a small network
# halt after the first pass before it has learned what the others are good for, and never have more.
FIRST_BIAS = -1.0
OFFSET = 1 << 13  # number of the draw of an offset; those of dropout are smaller


def check(config):
    transformer.check(config)
    check_keys(config, not_negative=["model.offsets"])
    is_post = config.model.norm == "post"
    require(is_post, "model.norm", config, "expected post: a norm after the last pass has no place")


def apply_passes(blocks, halt: Callable | None, x, keys, inputs: list[Inputs], first: int = 1):
    """Returns ([B, L, D] after each pass, the last one of them mixed by `halt`), and the caches of each pass.

    halt: (states) -> the probability that a token halts, float32[B, L]; None: all passes are made.
    inputs: those of each pass, with `extra`: the positions, int32[B, L]; None: those of the mask.
    first: number of the first pass' dropout keys.
    """
    states = []
    caches = []
    probabilities = []
    for number, (block, of_pass) in enumerate(zip(blocks, inputs, strict=True)):
        positions = of_pass.mask.positions[0] if of_pass.extra is None else of_pass.extra
        signal = sinusoids(positions, x.shape[-1])
        signal += sinusoids(jnp.asarray(number + 1), x.shape[-1])
        x += signal.astype(x.dtype)
        if halt:
            probabilities.append(halt(x))
        pass_keys = None if keys is None else prng.fold(keys, jnp.uint32(first + number))
        x, cache = block(x, of_pass, pass_keys)
        states.append(x)
        caches.append(cache)
    if halt:
        weights = act.halting(probabilities).weights
        mixed = jnp.einsum("nbl,nbld->bld", weights, jnp.stack(states))
        states[-1] = mixed.astype(x.dtype)
    return states, caches


class Halt(nn.Module):
    """Maps states [B, L, D] to the probability that a token halts, float32[B, L]."""

    @nn.compact
    def __call__(self, x):
        bias_init = nn.initializers.constant(FIRST_BIAS)
        logits = nn.Dense(1, bias_init=bias_init, name="logit")(x.astype(jnp.float32))
        return nn.sigmoid(logits)[..., 0]


class Encoder(transformer.Encoder, kw_only=True):
    """The encoder, of one block if it is shared. It makes the decoder's, too."""

    shared: bool
    halting: bool
    offsets: int

    def setup(self):
        super().setup()
        self.halt = Halt() if self.halting else None

    def make_blocks(self, specs, *options, **fields):
        """Returns a block for each spec; if they are shared, the same one."""
        if not self.shared:
            return super().make_blocks(specs, *options, **fields)
        return super().make_blocks(specs[:1], *options, **fields) * len(specs)

    def embed_tokens(self, tokens, positions, keys, number: int = 0):
        """Returns [B, L, D] in `dtype`: word embeddings times the root of the width."""
        x = self.embedder(tokens, positions, None) * self.width**0.5
        return maybe_dropout(x.astype(self.dtype), keys, number, self.dropout)

    def shift(self, positions, keys):
        """Returns the positions int32[B, L] with the offset of each row, if there are offsets. keys: uint32[B], or None
        in use."""
        if keys is None or not self.offsets:
            return positions
        offsets = prng.fold(keys, jnp.uint32(OFFSET)) % jnp.uint32(self.offsets)
        return positions + offsets[:, None].astype(positions.dtype)

    def states(self, batch, keys=None) -> list:
        """Returns the embeddings, and the states after each pass, [B, L, D] each."""
        x = self.embed(batch, keys)
        positions = self.shift(batch["positions"], keys)
        inputs = [Inputs(Mask(batch["sequence_ids"]), extra=positions)] * self.layers
        states, _ = apply_passes(self.blocks, self.halt, x, keys, inputs)
        return [x, *states]


class Decoder(transformer.Decoder):
    """The decoder, of one block: embeddings of the target to hidden states."""

    halting: bool

    def setup(self):
        self.halt = Halt() if self.halting else None

    def __call__(self, x, keys, inputs: list[Inputs]) -> tuple:
        first = transformer.DECODER + 1
        states, caches = apply_passes(self.blocks, self.halt, x, keys, inputs, first)
        return states[-1], caches


class Universal(transformer.Transformer):
    """The encoder and the decoder."""

    def setup(self):
        sizes = self.encoder
        specs = [self.spec] * self.decoder_layers
        blocks = sizes.make_blocks(specs, sizes.dropouts, has_context=True)
        self.decoder = Decoder(blocks, None, sizes.halting)

    def __call__(self, batch, keys=None):
        """Returns the hidden states [B, T, D] at the tokens of the target."""
        states = self.encoder(batch, keys)
        ids = batch["target_sequence_ids"]
        positions = batch["target_positions"]
        x = self.encoder.embed_tokens(batch["target_tokens"], positions, keys, transformer.DECODER)
        context = Inputs(Mask(ids, batch["sequence_ids"]), states)
        shifted = self.encoder.shift(positions, keys)
        inputs = Inputs(Mask(ids), context=context, extra=shifted)
        return self.decoder(x, keys, [inputs] * self.decoder_layers)[0]


def make(config, vocabulary_size, **fields):
    config = config.copy_and_resolve_references()
    model = config.model
    model.initializer = model.initializer or model.width**-0.5
    if model.halting:
        model.layers *= 2
        model.decoder_layers *= 2
    encoder = network.make(Encoder, config, vocabulary_size, **fields)
    return Universal(encoder, model.decoder_layers)
