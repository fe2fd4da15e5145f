"""The base class of the encoders makes and applies their blocks; the functions check the config keys that they share.

B batch, L length, D width, V padded vocabulary.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.config_checks import check_keys, require
from bert_jax.errors import BadInput
from bert_jax.layers import attention, blocks, rotary
from bert_jax.layers.attention_spec import Branches, Cache, Mask, Spec, empty_cache
from bert_jax.layers.blocks import ACTIVATIONS, Dropouts, LayerOptions
from bert_jax.layers.decoding import Split
from bert_jax.layers.embeddings import Embedder


class Encoder(nn.Module, kw_only=True):
    """Rows of tokens to hidden states.

    A subclass has `embed(batch, keys)`, the states [B, L, D] in front of the blocks, and a `setup` that makes
    `embedder`, `blocks`, and `final_norm`, which may be None. It may have `summary(x, batch)`: the vector of each
    packed sequence, [B, S, D], of the last states x.
    """

    vocabulary_size: int
    layers: int
    width: int
    heads: int
    feed_forward: int
    max_length: int
    dropout: float
    attention: str
    activation: str
    epsilon: float
    initializer: float
    dtype: jnp.dtype
    gradient_dtype: jnp.dtype
    remat: str
    # Fields that the objective and the program decide, see `Spec`.
    causal: bool = False
    sequences: int = 0
    is_counted: bool = False
    bias: ClassVar[bool] = True  # whether layers have biases

    @property
    def out_initializer(self) -> float:
        """The standard deviation of some weights, see LayerOptions."""
        return self.initializer

    @property
    def options(self) -> LayerOptions:
        """The options that all layers share."""
        return LayerOptions(
            self.activation,
            self.initializer,
            self.out_initializer,
            self.epsilon,
            self.gradient_dtype,
            self.bias,
        )

    @property
    def rotary_bases(self) -> list[float]:
        """The base of the rotary positions in each layer; 0: none."""
        return [0.0] * self.layers

    def __call__(self, batch, keys=None):
        """Returns the hidden states [B, L, D] of the last layer; see `states`."""
        return self.states(batch, keys)[-1]

    def states(self, batch, keys=None) -> list:
        """Returns the hidden states [B, L, D] in `dtype` of the embeddings and each layer. batch: see data/batch.py.

        keys: uint32[B], one per row, or None for no dropout.
        """
        masks = self.make_masks(Mask(batch["sequence_ids"]), batch["positions"])
        return self.apply_blocks(self.embed(batch, keys), keys, blocks.Inputs(masks))[0]

    def start(self, batch, length: int) -> Split:
        """Returns the cache of rows that have one sequence each, with padding at its end: it has all its tokens but the
        last, and room for `length`; see decoding.py. Attention is causal."""
        tokens = batch["tokens"]
        cache = empty_cache(len(tokens), length, self.heads, self.make_spec(), self.dtype)
        _, caches = self.read(tokens, [cache] * self.layers, cache.mask(tokens.shape[1]))
        sizes = (batch["sequence_ids"] > 0).sum(axis=1, dtype=jnp.int32) - 1
        visible = jnp.arange(length) < sizes[:, None]
        caches = [cache._replace(position=sizes) for cache in caches]
        return Split(caches, Branches(visible, sizes))

    def read_next(self, tokens, cache: Split) -> tuple:
        """Returns the last states [B N, D] of one more token int32[B N] of each hypothesis, and the cache with it."""
        caches, branches = cache
        position = caches[0].position
        mask, branches = branches.append(position)
        x, caches = self.read(tokens.reshape(len(position), -1), caches, mask)
        return x.reshape(len(tokens), -1), Split(caches, branches)

    def read(self, tokens, caches: list[Cache], mask: Mask) -> tuple:
        """Returns the last states [B, L, D] of tokens int32[B, L] behind those of the caches, and these with them.

        mask: that of the tokens.
        """
        positions = mask.positions[0]
        batch = {
            "tokens": tokens,
            "positions": positions,
            "segments": jnp.zeros_like(tokens),
        }
        inputs = blocks.Inputs(self.make_masks(mask, positions), caches=caches)
        states, caches = self.apply_blocks(self.embed(batch), None, inputs)
        return states[-1], caches

    def make_embedder(
        self, max_length: int, type_vocabulary: int, position_scale: float = 1.0
    ) -> Embedder:
        """Returns the embeddings, with these numbers of positions and segments; 0: none."""
        return Embedder(
            self.vocabulary_size,
            max_length,
            type_vocabulary,
            self.width,
            self.initializer,
            self.gradient_dtype,
            self.dtype,
            position_scale,
        )

    def make_spec(self, dropout: float = 0.0, window: int = 0) -> Spec:
        """Returns the Spec of the attention of a layer."""
        return Spec(
            self.attention,
            self.width // self.heads,
            window,
            self.causal,
            dropout,
            self.remat == "attention",
            self.sequences,
            self.is_counted,
        )

    def make_blocks(self, specs: list[Spec], hidden: int, dropouts: Dropouts, is_normal, **fields):
        """Returns a block for each of the specs, as a list; see `blocks.make_blocks`. hidden: the size of the
        feed-forward layers."""
        fields |= dict(heads=self.heads, hidden=hidden, options=self.options, dropouts=dropouts)
        return blocks.make_blocks(specs, self.remat, is_normal, **fields)

    def make_masks(self, mask: Mask, positions) -> list[Mask]:
        """Returns the mask of each layer: `mask` with its rotary angles. positions: int32[B, L]."""
        angles = {0.0: ()}
        for base in self.rotary_bases:
            if base not in angles:
                angles[base] = rotary.angles(positions, self.width // self.heads, base)
        return [mask._replace(angles=angles[base]) for base in self.rotary_bases]

    def apply_blocks(self, x, keys, inputs: blocks.Inputs) -> tuple[list, list]:
        """Does what `blocks.apply_blocks` does. The last states are normalized if there is a `final_norm`."""
        states, caches = blocks.apply_blocks(self.blocks, x, keys, inputs)
        if self.final_norm:
            states[-1] = self.final_norm(states[-1])
        return states, caches

    def vocabulary_logits(self, x, bias=None):
        """Returns float32 logits [..., V] of x[..., D] by the tied word embeddings; see `embeddings.Embedder`."""
        return self.embedder.vocabulary_logits(x, bias)


def make(encoder: type[Encoder], config, vocabulary_size: int, **fields) -> Encoder:
    """Returns the encoder of a class and of a config whose data types are resolved (no `auto`). Keys of the model that
    are no fields of the class are those of other parts.

    fields: what the objective and the program decide.
    """
    names = {field.name for field in dataclasses.fields(encoder)} - {"name"}
    keys = {name: value for name, value in config.model.items() if name in names}
    return encoder(
        vocabulary_size=vocabulary_size,
        dtype=jnp.dtype(config.dtype),
        gradient_dtype=jnp.dtype(config.gradient_dtype),
        remat=config.train.remat,
        **fields,
        **keys,
    )


def resolve(network: Encoder, config, phase, mesh, properties: tuple[str, ...] = ()) -> str:
    """Returns the attention implementation that trains a network whose layers are alike; see `models.base`.

    properties: as of `attention.resolve`.
    """
    check_mesh(config, mesh)
    spec = network.make_spec(network.attention_dropout)
    return attention.resolve(spec, config, phase, mesh, properties)


def check_mesh(config, mesh) -> None:
    """Raises BadInput if a size of the model does not divide over the mesh."""
    for key, axis in (("heads", "tensor"), ("feed_forward", "tensor"), ("width", "fsdp")):
        if config.model[key] % mesh.shape[axis]:
            parts = f"config.mesh.{axis}={mesh.shape[axis]}"
            raise BadInput(f"config.model.{key}={config.model[key]}: does not divide over {parts}")


def unused_positions(config) -> list[str]:
    """Returns a warning if some position embeddings are in no row."""
    most = config.model.max_length
    longest = max(phase.length for phase in config.phases.values())
    if config.model.positions == "rotary" or longest >= most:
        return []
    return [
        f"model.max_length={most}: rows have at most {longest} tokens; later positions are not trained"
    ]


def check(config) -> None:
    """Raises BadInput for the first invalid value among the keys of all encoders."""
    check_keys(
        config,
        choices={
            "model.attention": ("auto", "xla", "fused", "splash", "cudnn"),
            "model.activation": tuple(ACTIVATIONS),
        },
        shares=["model.dropout"],
        at_least_one=[f"model.{key}" for key in ("layers", "width", "heads", "max_length")],
        not_negative=["model.initializer"],
    )
    model = config.model
    require(model.epsilon > 0, "model.epsilon", config, "expected more than 0")
    divides = model.width % model.heads == 0
    hint = f"does not divide model.width={model.width}"
    require(divides, "model.heads", config, hint)
    hint = f"expected at most model.max_length={model.max_length}"
    for name, phase in config.phases.items():
        require(phase.length <= model.max_length, f"phases.{name}.length", config, hint)


def check_parts(config) -> None:
    """Raises BadInput for the first invalid value among the keys that BERT and GPT have besides."""
    check_keys(
        config,
        choices={"model.norm": ("post", "pre"), "model.positions": ("learned", "rotary")},
        shares=["model.attention_dropout"],
        not_negative=["model.feed_forward"],
    )
    if config.model.positions == "rotary":
        check_rotary(config)


def check_rotary(config) -> None:
    """Raises BadInput if heads cannot be rotated."""
    model = config.model
    is_even = model.width // model.heads % 2 == 0
    hint = f"model.width={model.width}: heads have an odd size"
    require(is_even, "model.heads", config, hint)
