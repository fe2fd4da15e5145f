"""BERT (arXiv:1810.04805): a post-norm Transformer encoder with learned position embeddings and a pooler.

B batch, L length, S packed sequences per row, D width, V padded vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.models import attention, layers


class Encoder(nn.Module):
    """The BERT encoder: rows of tokens to hidden states."""

    vocabulary_size: int
    layers: int
    width: int
    heads: int
    feed_forward: int
    max_length: int
    type_vocabulary: int
    dropout: float
    attention: str
    attention_dropout: float
    activation: str
    epsilon: float
    initializer: float
    dtype: jnp.dtype
    gradient_dtype: jnp.dtype
    remat: str
    causal: bool = False  # whether a token attends to no later one; the objective decides

    def setup(self):
        self.embedder = layers.Embedder(
            self.vocabulary_size,
            self.max_length,
            self.type_vocabulary,
            self.width,
            self.initializer,
            self.gradient_dtype,
        )
        self.embedder_norm = layers.LayerNorm(self.epsilon, self.dtype)
        block = nn.remat(layers.Block) if self.remat == "full" else layers.Block
        self.blocks = [
            block(
                heads=self.heads,
                hidden=self.feed_forward or 4 * self.width,
                activation=self.activation,
                dropout=self.dropout,
                initializer=self.initializer,
                epsilon=self.epsilon,
                gradient_dtype=self.gradient_dtype,
            )
            for _ in range(self.layers)
        ]
        self.pooler = layers.Dense(self.width, self.initializer, self.gradient_dtype)

    def __call__(self, batch, keys=None):
        """Returns the hidden states [B, L, D] in `dtype`. batch: see data/batch.py.

        keys: uint32[B], one per row, or None for no dropout.
        """
        # `init` runs on a short row, which the attention kernels do not support. Parameters are the same with `xla`.
        name = "xla" if self.is_initializing() else self.attention
        remat = self.remat == "attention"
        attend = attention.make(name, batch, self.attention_dropout, remat, self.causal)
        x = self.embedder(batch["tokens"], batch["positions"], batch["segments"])
        x = layers.maybe_dropout(self.embedder_norm(x), keys, 0, self.dropout)
        for number, block in enumerate(self.blocks):
            layer_keys = None if keys is None else prng.fold(keys, jnp.uint32(number + 1))
            x = block(x, attend, layer_keys)
        return x

    def pool(self, x, cls_positions):
        """Returns [B, S, D]: a dense layer and tanh on the [CLS] vector of each sequence. cls_positions int32[B, S]."""
        return jnp.tanh(self.pooler(jnp.take_along_axis(x, cls_positions[..., None], axis=1)))

    def vocabulary_logits(self, x, bias):
        """Returns float32 logits [..., V] of x[..., D] by the tied word embeddings; see `layers.Embedder`."""
        return self.embedder.vocabulary_logits(x, bias)


def make(config, vocabulary_size: int, causal: bool = False) -> Encoder:
    """Returns the encoder of a config whose data types are resolved (no `auto`)."""
    names = {field.name for field in dataclasses.fields(Encoder)} & set(config.model) - {"name"}
    return Encoder(
        vocabulary_size=vocabulary_size,
        dtype=jnp.dtype(config.dtype),
        gradient_dtype=jnp.dtype(config.gradient_dtype),
        remat=config.train.remat,
        causal=causal,
        **{name: config.model[name] for name in names},
    )


def row_flops(model, vocabulary: int, length: int, predictions: int, sequences: int = 1) -> float:
    """Returns the floating-point operations per row of a training step: three times the forward matrix products.

    Vocabulary logits are counted at the `predictions` masked positions only. Recomputation (`train.remat`) and dropout
    are not counted. Attention between packed sequences is counted: it is computed, and then masked.
    """
    width, hidden = model.width, model.feed_forward or 4 * model.width
    layer = (8 * width**2 + 4 * width * hidden) * length + 4 * length**2 * width
    head = 2 * predictions * (width**2 + width * vocabulary) + 2 * sequences * width**2
    return 3.0 * (model.layers * layer + head)


def parameters(params, vocabulary: int) -> dict[str, int]:
    """Returns the numbers of parameters of the model and of its encoder, under their keys in run.json."""
    return {
        "parameters": count(params, vocabulary),
        "encoder_parameters": count({"encoder": params["encoder"]}, vocabulary),
    }


def count(params, vocabulary: int) -> int:
    """Returns the number of parameters, without the rows that pad the vocabulary."""
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    for path, leaf in jax.tree.leaves_with_path(params):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(
            ("embedder/words", "lm/bias")
        ):
            total -= leaf.size * (leaf.shape[0] - vocabulary) // leaf.shape[0]
    return total


def step_flops(config, vocabulary: int, phase) -> float:
    """Returns the FLOPs of a training step, which `model_flops_utilization` counts."""
    shape = phase.length, phase.keys.max_predictions, phase.keys.max_packed
    return row_flops(config.model, vocabulary, *shape) * phase.batch
