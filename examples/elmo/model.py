"""ELMo's bidirectional language model (arXiv:1802.05365): words from characters, and LSTMs from both ends of a row.

Its states are N + 1 layers: the vector of a word, twice, and after each layer of LSTMs the state from the left and the
one from the right. It reads

    characters    int32[B, L, M]    of each word, see characters.py

B batch, L length in words, M characters of a word, E width of a character, P width of each direction, N layers.
"""

import jax.numpy as jnp
from elmo.characters import SIZE
from elmo.lstm import LSTM
from flax import linen as nn
from jax.sharding import PartitionSpec

from bert_jax.checks import check_keys, require
from bert_jax.layers.dense import affine
from bert_jax.layers.dropout import maybe_dropout

DEFAULTS = {
    # filters of each width, from one character on; seven widths in the published model
    "filters": (32, 32, 64, 128, 256, 512, 1024),
    "character_width": 16,  # size of the vector of a character
    "highways": 2,  # highway layers between the filters and the projection
    "activation": "relu",  # that of the filters: relu or tanh
    "layers": 2,  # LSTMs one above the other, each direction
    "cell": 4096,  # size of the cell of an LSTM
    "width": 512,  # of its output, and of the vector of a word
    "clip": 3.0,  # largest absolute value in cells and outputs
    "residual": True,  # whether an LSTM above the first adds its input to its output
    "unroll": 20,  # words that a gradient goes back through; the states go through the whole row
    "dropout": 0.1,  # dropout rate on the inputs of each LSTM, and in front of the softmax
}
RULES = ((r"(characters|projection)$", PartitionSpec()),)
DECAY = ((r"characters$", False), (r"projection$", True))
ACTIVATIONS = {"relu": nn.relu, "tanh": jnp.tanh}
FRAME = "cls | sep | sep"


def check(config):
    sizes = ("character_width", "layers", "cell", "width", "unroll")
    check_keys(
        config,
        choices={"model.activation": tuple(ACTIVATIONS)},
        shares=["model.dropout"],
        at_least_one=[f"model.{size}" for size in sizes],
        not_negative=["model.highways"],
    )
    model = config.model
    require(model.clip > 0, "model.clip", config, "expected more than 0")
    # Overrides are texts.
    is_valid = model.filters and all(str(number).isdecimal() for number in model.filters)
    require(is_valid, "model.filters", config, "expected numbers of filters, such as (32, 64)")


class Affine(nn.Module):
    """A dense layer with any initial values."""

    features: int
    gradient_dtype: jnp.dtype
    kernel_init: nn.initializers.Initializer
    bias: float = 0.0  # initial value

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features), jnp.float32)
        bias_init = nn.initializers.constant(self.bias)
        bias = self.param("bias", bias_init, (self.features,), jnp.float32)
        return affine(x, kernel, bias, self.gradient_dtype)


class Filters(nn.Module):
    """Characters to the vector of a word: filters of several widths, each at its maximum."""

    filters: tuple
    character_width: int
    activation: str
    dtype: jnp.dtype
    gradient_dtype: jnp.dtype

    @nn.compact
    def __call__(self, characters):
        """Returns [B, L, the number of filters]."""
        init = nn.initializers.uniform(2.0)
        shape = SIZE, self.character_width
        table = self.param("characters", lambda *args: init(*args) - 1, shape, jnp.float32)
        x = table.at[characters].get(mode="promise_in_bounds").astype(self.dtype)
        vectors = []
        for width, number in enumerate(self.filters, 1):
            if not number:
                continue
            places = x.shape[2] - width + 1
            windows = [x[:, :, start : start + places] for start in range(width)]
            kernel_init = initial_filters(self.activation)
            dense = Affine(number, self.gradient_dtype, kernel_init, name=f"width_{width}")
            # Each window is one row of a product, which FLOPs are counted of; those of a convolution would not be.
            values = dense(jnp.concatenate(windows, axis=-1))
            vectors.append(ACTIVATIONS[self.activation](values.max(axis=2)))
        return jnp.concatenate(vectors, axis=-1)


def initial_filters(activation: str) -> nn.initializers.Initializer:
    """Returns the initial values of filters, as in bilm/training.py of allenai/bilm-tf."""
    if activation == "tanh":
        return nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    init = nn.initializers.uniform(0.1)
    return lambda *args: init(*args) - 0.05


class Highway(nn.Module):
    """A highway layer (arXiv:1505.00387), which begins by passing most of its input on."""

    gradient_dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.normal(x.shape[-1] ** -0.5)
        fields = x.shape[-1], self.gradient_dtype, init
        carry = nn.sigmoid(Affine(*fields, -2.0, name="carry")(x))
        return carry * nn.relu(Affine(*fields, name="transform")(x)) + (1 - carry) * x


class Words(nn.Module):
    """Characters int32[B, L, M] to the vectors of words, [B, L, P]."""

    filters: Filters
    highways: int
    width: int

    @nn.compact
    def __call__(self, characters):
        x = self.filters(characters)
        for number in range(self.highways):
            x = Highway(self.filters.gradient_dtype, name=f"highway_{number}")(x)
        init = nn.initializers.normal(x.shape[-1] ** -0.5)
        return Affine(self.width, self.filters.gradient_dtype, init, name="out")(x)


class BiLM(nn.Module, kw_only=True):
    """The bidirectional language model without its softmax."""

    filters: tuple
    character_width: int
    highways: int
    activation: str
    layers: int
    cell: int
    width: int
    clip: float
    residual: bool
    unroll: int
    dropout: float
    dtype: jnp.dtype
    gradient_dtype: jnp.dtype

    def setup(self):
        filters = Filters(
            self.filters,
            self.character_width,
            self.activation,
            self.dtype,
            self.gradient_dtype,
            parent=None,
        )
        self.words = Words(filters, self.highways, self.width)
        sizes = self.cell, self.width, self.clip, self.unroll, self.gradient_dtype
        self.forward = [LSTM(*sizes) for _ in range(self.layers)]
        self.backward = [LSTM(*sizes) for _ in range(self.layers)]

    def __call__(self, batch, keys=None):
        """Returns the states [B, L, 2 P] of the last layer."""
        return self.states(batch, keys)[-1]

    def states(self, batch, keys=None) -> list:
        """Returns [B, L, 2 P] of the words and of each layer; the first half is from the left."""
        return self.run(batch, keys)[0]

    def run(self, batch, keys=None, before=None) -> tuple[list, tuple]:
        """Returns the states of each layer, and the last states of the LSTMs, as `before` has them.

        before: states of the LSTMs in front of the first word of each direction, two lists of N; None: zeros.
        """
        words = self.words(batch["characters"])
        is_real = batch["sequence_ids"] > 0
        left, right = before or (None, None)
        from_left, left = self.apply_layers(self.forward, words, is_real, keys, 0, left)
        # Padding at the end is in front then, and changes no state.
        reverse = words[:, ::-1], is_real[:, ::-1]
        from_right, right = self.apply_layers(self.backward, *reverse, keys, self.layers, right)
        states = [jnp.concatenate([words, words], axis=-1)]
        for pair in zip(from_left, from_right, strict=True):
            states.append(jnp.concatenate([pair[0], pair[1][:, ::-1]], axis=-1))
        return states, (left, right)

    def apply_layers(self, layers, x, is_real, keys, first, before) -> tuple[list, list]:
        """Returns the outputs [B, L, P] of each LSTM of one direction, and the last state of each.

        first: number of the dropout in front of the first one.
        """
        outputs = []
        after = []
        for index, layer in enumerate(layers):
            x = maybe_dropout(x, keys, first + index, self.dropout)
            y, state = layer(x, is_real, before[index] if before else None)
            x = x + y if self.residual and index else y
            outputs.append(x)
            after.append(state)
        return outputs, after


def make(config, vocabulary_size, **fields):
    """Returns the network of a config, whose model may have further keys."""
    keys = {name: config.model[name] for name in DEFAULTS}
    keys["filters"] = tuple(map(int, config.model.filters))
    return BiLM(
        dtype=jnp.dtype(config.dtype),
        gradient_dtype=jnp.dtype(config.gradient_dtype),
        **keys,
    )
