"""BERT (arXiv:1810.04805): a post-norm Transformer encoder with learned positions and a pooler.

B batch, L length, S packed sequences a row, D width.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.models import attention, layers


class Encoder(nn.Module):
    """Rows of tokens to vectors."""

    vocabulary: int
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

    def setup(self):
        self.embedder = layers.Embedder(
            self.vocabulary,
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
        """The batch contract's arrays -> vectors[B, L, D] in `dtype`; dropout where there are keys uint32[B]."""
        # Parameters, which are made with a short row, do not depend on it.
        kind = "xla" if self.is_initializing() else self.attention
        remat = self.remat == "attention"
        attend = attention.make(kind, batch, self.attention_dropout, remat)
        x = self.embedder(batch["tokens"], batch["positions"], batch["segments"])
        x = layers.maybe_dropout(self.embedder_norm(x), keys, 0, self.dropout)
        for number, block in enumerate(self.blocks):
            layer_keys = None if keys is None else prng.fold(keys, jnp.uint32(number + 1))
            x = block(x, attend, None, layer_keys)
        return x

    def pool(self, x, cls_positions):
        """vectors[B, L, D] and int32[B, S] -> [B, S, D]: a dense layer and tanh on each sequence's [CLS]."""
        return jnp.tanh(self.pooler(jnp.take_along_axis(x, cls_positions[..., None], axis=1)))

    def attend(self, x, bias):
        """Logits over the padded vocabulary by the word embeddings."""
        return self.embedder.attend(x, bias)


def make(config, vocabulary: int) -> Encoder:
    """The encoder of a config with resolved dtypes, for a vocabulary of this many pieces."""
    names = {field.name for field in dataclasses.fields(Encoder)} & set(config.model) - {"name"}
    return Encoder(
        vocabulary=vocabulary,
        dtype=jnp.dtype(config.dtype),
        gradient_dtype=jnp.dtype(config.gradient_dtype),
        remat=config.train.remat,
        **{name: config.model[name] for name in names},
    )


def row_flops(model, vocabulary: int, length: int, predictions: int, sequences: int = 1) -> float:
    """Floating-point operations of a training step, a row: three times the matrix products of the forward pass.

    Only the masked positions meet the vocabulary. Remat and dropout do not count; the attention of one packed pair to
    another does, which is computed before it is masked.
    """
    width, hidden = model.width, model.feed_forward or 4 * model.width
    layer = (8 * width**2 + 4 * width * hidden) * length + 4 * length**2 * width
    head = 2 * predictions * (width**2 + width * vocabulary) + 2 * sequences * width**2
    return 3.0 * (model.layers * layer + head)


def parameters(params, vocabulary: int) -> dict[str, int]:
    """For run.json: the parameters of the model, and of its encoder."""
    return {
        "parameters": count(params, vocabulary),
        "encoder_parameters": count({"encoder": params["encoder"]}, vocabulary),
    }


def count(params, vocabulary: int) -> int:
    """Parameters without the rows that pad the vocabulary."""
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    for path, leaf in jax.tree.leaves_with_path(params):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(
            ("embedder/words", "mlm/bias")
        ):
            total -= leaf.size * (leaf.shape[0] - vocabulary) // leaf.shape[0]
    return total
