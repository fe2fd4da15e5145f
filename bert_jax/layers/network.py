"""The base class of networks makes and applies their blocks; the functions check the config keys that they share.

B batch, L length, D width, V padded vocabulary.
"""

import dataclasses
from functools import partial
from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.checks import check_keys, require
from bert_jax.config import resolve_model
from bert_jax.errors import BadInput
from bert_jax.layers import rotary
from bert_jax.layers.attention_spec import Branches, Cache, Mask, Spec, empty_cache
from bert_jax.layers.blocks import (
    ACTIVATIONS,
    Attention,
    Block,
    Dropouts,
    FeedForward,
    Inputs,
    LayerOptions,
    apply_blocks,
)
from bert_jax.layers.decoding import BranchedCache
from bert_jax.layers.dense import Dense
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.embeddings import Embedder
from bert_jax.layers.heads import Head
from bert_jax.layers.norm import LayerNorm


class Network(nn.Module, kw_only=True):
    """Rows of tokens to hidden states.

    A subclass may have `summary(x, batch)`: the vector of each packed sequence, [B, S, D], of the last states x.
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
    # Keys that some models lack.
    attention_dropout: float = 0.0
    norm: str = "post"
    positions: str = "learned"  # embeddings are made of learned ones alone
    type_vocabulary: int = 0
    # That of the embeddings, which a dense layer projects to `width`; 0: `width`, and no such layer.
    embedding_width: int = 0
    gated: bool = False
    # Fields that the objective and the program decide, see `Spec`.
    causal: bool = False
    sequences: int = 0
    is_counted: bool = False
    bias: ClassVar[bool] = True  # whether layers have biases
    is_normal: ClassVar[bool] = False  # whether embeddings are normalized
    position_scale: ClassVar[float] = 1.0  # see Embedder
    attention_type: ClassVar[type[Attention]] = Attention

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
    def head(self) -> Head:
        """What heads read of it."""
        return Head(self.vocabulary_size, self.width, self.options, self.embedding_width)

    @property
    def rotary_bases(self) -> list[float]:
        """The base of the rotary positions in each layer; 0: none."""
        base = rotary.BASE if self.positions == "rotary" else 0.0
        return [base] * self.layers

    @property
    def specs(self) -> list[Spec]:
        """The Spec of the attention of each layer."""
        return [self.make_spec(self.attention_dropout)] * self.layers

    @property
    def dropouts(self) -> Dropouts:
        """The dropout rates of the blocks."""
        return Dropouts(attention=self.dropout, feed_forward=self.dropout)

    def setup(self):
        norm = partial(LayerNorm, self.epsilon, self.dtype, self.bias)
        self.embedder = Embedder(
            self.vocabulary_size,
            self.max_length if self.positions == "learned" else 0,
            self.type_vocabulary,
            self.embedding_width or self.width,
            self.initializer,
            self.gradient_dtype,
            self.dtype,
            self.position_scale,
        )
        self.embedder_norm = norm() if self.is_normal else None
        self.embedder_dense = None
        if self.embedding_width:
            self.embedder_dense = Dense(self.width, self.initializer, self.gradient_dtype)
        is_normal = self.is_normal and not self.embedding_width
        self.blocks = self.make_blocks(self.specs, self.dropouts, is_normal)
        self.final_norm = norm() if self.norm == "pre" else None

    def embed(self, batch, keys=None):
        """Returns the states [B, L, D] in front of the blocks."""
        return self.enter(self.embeddings(batch), keys)

    def embeddings(self, batch):
        """Returns the embeddings [B, L, E], normalized if they are."""
        x = self.embedder(batch["tokens"], batch["positions"], batch.get("segments"))
        return self.embedder_norm(x) if self.embedder_norm else x

    def enter(self, embeddings, keys):
        """Returns the states [B, L, D] of embeddings [B, L, E]: with dropout, and projected."""
        x = maybe_dropout(embeddings.astype(self.dtype), keys, 0, self.dropout)
        return self.embedder_dense(x) if self.embedder_dense else x

    def __call__(self, batch, keys=None):
        """Returns the hidden states [B, L, D] of the last layer; see `states`."""
        return self.states(batch, keys)[-1]

    def states(self, batch, keys=None, embeddings=None) -> list:
        """Returns the hidden states [B, L, D] in `dtype` of the embeddings and each layer. batch: see data/batch.py.

        keys: uint32[B], one per row, or None for no dropout.
        embeddings: those of another network, instead of its own.
        """
        inputs = self.make_inputs(Mask(batch["sequence_ids"]), batch["positions"])
        x = self.embed(batch, keys) if embeddings is None else self.enter(embeddings, keys)
        return apply_blocks(self.blocks, x, keys, inputs, self.final_norm)[0]

    def start(self, batch, length: int) -> BranchedCache:
        """Returns the cache of rows that have one sequence each, with padding at its end: it has all its tokens but the
        last, and room for `length`; see decoding.py. Attention is causal."""
        tokens = batch["tokens"]
        cache = empty_cache(len(tokens), length, self.heads, self.make_spec(), self.dtype)
        _, caches = self.read(tokens, [cache] * self.layers, cache.mask(tokens.shape[1]))
        sizes = (batch["sequence_ids"] > 0).sum(axis=1, dtype=jnp.int32) - 1
        visible = jnp.arange(length) < sizes[:, None]
        caches = [cache._replace(position=sizes) for cache in caches]
        return BranchedCache(caches, Branches(visible, sizes))

    def read_next(self, tokens, cache: BranchedCache) -> tuple:
        """Returns the last states [B N, D] of one more token int32[B N] of each hypothesis, and the cache with it."""
        caches, branches = cache
        position = caches[0].position
        mask, branches = branches.append(position)
        x, caches = self.read(tokens.reshape(len(position), -1), caches, mask)
        return x.reshape(len(tokens), -1), BranchedCache(caches, branches)

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
        inputs = self.make_inputs(mask, positions)
        inputs = [x._replace(cache=cache) for x, cache in zip(inputs, caches, strict=True)]
        x = self.embed(batch)
        states, caches = apply_blocks(self.blocks, x, None, inputs, self.final_norm)
        return states[-1], caches

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
            self.attention_type.needs(),
        )

    def make_attention(self, spec: Spec, **fields) -> Attention:
        """Returns the attention of a layer, for a Block. fields: the others of `attention_type`."""
        return self.attention_type(self.heads, spec, self.options, parent=None, **fields)

    def make_blocks(
        self, specs: list[Spec], dropouts: Dropouts, is_normal=False, has_context=False
    ) -> list[Block]:
        """Returns a block for each of the specs.

        is_normal: whether the input of the first block is normalized.
        has_context: whether the blocks attend to a second sequence, too.
        """
        options = self.options
        block_type = nn.remat(Block) if self.remat == "full" else Block
        blocks = []
        for number, spec in enumerate(specs):
            context = None
            if has_context:
                context = Attention(self.heads, spec.to_context(), options, parent=None)
            block = block_type(
                self.make_attention(spec),
                FeedForward(self.feed_forward, options, self.gated, dropouts.hidden, parent=None),
                partial(LayerNorm, options.epsilon, bias=options.bias),
                dropouts,
                self.norm,
                context,
                is_normal and number == 0,
                parent=None,
            )
            blocks.append(block)
        return blocks

    def make_inputs(self, mask: Mask, positions) -> list[Inputs]:
        """Returns what each layer reads: `mask` with its rotary angles. positions: int32[B, L]."""
        angles = {0.0: ()}
        for base in self.rotary_bases:
            if base not in angles:
                angles[base] = rotary.angles(positions, self.width // self.heads, base)
        return [Inputs(mask._replace(angles=angles[base])) for base in self.rotary_bases]

    def vocabulary_logits(self, x, bias=None):
        """Returns float32 logits [..., V] of x[..., D] by the tied word embeddings; see `embeddings.Embedder`."""
        return self.embedder.vocabulary_logits(x, bias)


def make(network: type[Network], config, vocabulary_size: int, **fields) -> Network:
    """Returns the network of a class and of a config whose data types are resolved (no `auto`). Keys of the model that
    are no fields of the class are those of other parts.

    fields: what the objective and the program decide.
    """
    names = {field.name for field in dataclasses.fields(network)} - {"name"}
    keys = {name: value for name, value in resolve_model(config).model.items() if name in names}
    return network(
        vocabulary_size=vocabulary_size,
        dtype=jnp.dtype(config.dtype),
        gradient_dtype=jnp.dtype(config.gradient_dtype),
        remat=config.train.remat,
        **fields,
        **keys,
    )


def check_mesh(config, mesh) -> None:
    """Raises BadInput if a size of the model is not divisible by an axis of the mesh."""
    for key, axis in (("heads", "tensor"), ("feed_forward", "tensor"), ("width", "fsdp")):
        if config.model[key] % mesh.shape[axis]:
            parts = f"config.mesh.{axis}={mesh.shape[axis]}"
            raise BadInput(f"config.model.{key}={config.model[key]}: not divisible by {parts}")


def unused_positions(config) -> list[str]:
    """Returns a warning if some position embeddings are in no row."""
    most = config.model.get("max_length", 0)
    longest = max(phase.length for phase in config.phases.values())
    if config.model.get("positions") != "learned" or longest >= most:
        return []
    return [
        f"model.max_length={most}: rows have at most {longest} tokens; later positions are not trained"
    ]


CHOICES = {
    "attention": ("auto", "xla", "fused", "splash", "cudnn"),
    "activation": tuple(ACTIVATIONS),
    "norm": ("post", "pre"),
    "positions": ("learned", "rotary"),
}


def check(config) -> None:
    """Raises BadInput for the first invalid value among the keys of all networks, and of those that some have."""
    model = config.model

    def present(*keys):
        return [f"model.{key}" for key in keys if key in model]

    check_keys(
        config,
        choices={f"model.{key}": CHOICES[key] for key in CHOICES if key in model},
        shares=present("dropout", "attention_dropout", "hidden_dropout"),
        at_least_one=present("layers", "decoder_layers", "width", "heads", "max_length"),
        not_negative=present("initializer", "feed_forward"),
    )
    require(model.epsilon > 0, "model.epsilon", config, "expected more than 0")
    divides = model.width % model.heads == 0
    hint = f"does not divide model.width={model.width}"
    require(divides, "model.heads", config, hint)
    hint = f"expected at most model.max_length={model.max_length}"
    for name, phase in config.phases.items():
        require(phase.length <= model.max_length, f"phases.{name}.length", config, hint)
    if model.get("positions") == "rotary":
        check_rotary(config)


def check_no_pairs(config) -> None:
    """Raises BadInput for a pair loss, which the model does not have."""
    pair_task = config.task.get("pair_task", "none")
    hint = f"expected none: model.name={config.model.name!r} has no pair loss"
    require(pair_task == "none", "task.pair_task", config, hint)


def check_rotary(config) -> None:
    """Raises BadInput if heads cannot be rotated."""
    model = config.model
    is_even = model.width // model.heads % 2 == 0
    hint = f"model.width={model.width}: heads have an odd size"
    require(is_even, "model.heads", config, hint)
