"""BERT's training step from standard parts of Flax and Optax: the baseline of benchmarks/tpu.py.

Model, rows, objective and data types (float32 parameters, bfloat16 products) are ours; the parts are those that a user
of Flax Linen would choose: nn.MultiHeadDotProductAttention, nn.Dropout with JAX's generator, nn.LayerNorm, optax.adamw.
Rows are split over all devices and the state is replicated. It uses none of bert_jax's models, nor its step.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import config as configs
from bert_jax.data import batch
from bert_jax.parallel.constraints import ROWS
from bert_jax.tasks.text import mlm_batch

FORMS = ("unrolled", "scanned")  # each layer in the program, or one layer in a loop
EPSILON = 1e-12
initializer = nn.initializers.truncated_normal(0.02)


class Block(nn.Module):
    """A post-norm block, x[B, L, D], mask[B, 1, L, L] -> [B, L, D]. model: see config.model."""

    model: object
    dtype: object

    @nn.compact
    def __call__(self, x, mask):
        model = self.model
        common = dict(dtype=self.dtype, kernel_init=initializer)

        def add_and_norm(x, y):
            y = nn.Dropout(model.dropout, deterministic=False)(y)
            return nn.LayerNorm(EPSILON, dtype=self.dtype)(x + y)

        attention = nn.MultiHeadDotProductAttention(
            model.heads,
            dropout_rate=model.attention_dropout,
            broadcast_dropout=False,  # another mask for each row, as published
            deterministic=False,
            **common,
        )
        x = add_and_norm(x, attention(x, mask=mask))
        y = nn.gelu(nn.Dense(model.feed_forward, **common)(x))
        return add_and_norm(x, nn.Dense(model.width, **common)(y)), None


class Bert(nn.Module):
    """BERT with both heads: a batch (see bert_jax/data/batch.py) -> the sum of both losses."""

    model: object
    vocabulary: int
    dtype: object
    form: str  # of FORMS

    @nn.compact
    def __call__(self, batch):
        model = self.model
        common = dict(dtype=self.dtype)

        def embed(size):
            return nn.Embed(size, model.width, embedding_init=initializer, **common)

        def dense(size):
            return nn.Dense(size, kernel_init=initializer, **common)

        words = embed(self.vocabulary)
        x = words(batch["tokens"]) + embed(model.max_length)(batch["positions"])
        x = nn.LayerNorm(EPSILON, **common)(x + embed(2)(batch["segments"]))
        x = nn.Dropout(model.dropout, deterministic=False)(x)
        ids = batch["sequence_ids"]
        mask = nn.make_attention_mask(ids, ids, jnp.equal)
        if self.form == "scanned":
            split = dict(params=True, dropout=True)
            layers = nn.scan(
                Block, {"params": 0}, split_rngs=split, in_axes=nn.broadcast, length=model.layers
            )
            x, _ = layers(model, self.dtype)(x, mask)
        else:
            for _ in range(model.layers):
                x, _ = Block(model, self.dtype)(x, mask)

        def at(positions):
            return jnp.take_along_axis(x, positions[..., None], axis=1)

        masked = nn.gelu(dense(model.width)(at(batch["masked_positions"])))
        bias = self.param("bias", nn.initializers.zeros, (self.vocabulary,))
        logits = words.attend(nn.LayerNorm(EPSILON, **common)(masked)) + bias
        pairs = dense(2)(nn.tanh(dense(model.width)(at(batch["cls_positions"]))))
        masked_loss = mean(logits, batch["masked_targets"], batch["masked_weights"])
        return masked_loss + mean(pairs, batch["pair_labels"], batch["pair_weights"])


def mean(logits, labels, weights):
    losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
    return (losses * weights).sum() / weights.sum()


def make(config, vocabulary: int, form: str):
    """Returns initialize: () -> TrainState, and step: (TrainState, batch) -> (TrainState, loss)."""
    keys = config.optimizer
    steps = configs.total_steps(config)
    warmup = config.schedule.warmup
    rate = optax.warmup_cosine_decay_schedule(0.0, keys.learning_rate, warmup, steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(keys.clip),
        optax.adamw(rate, weight_decay=keys.weight_decay),
    )
    bert = Bert(configs.resolve_model(config).model, vocabulary, jnp.dtype(config.dtype), form)

    def initialize():
        a, b = jax.random.split(jax.random.key(config.seed))
        example = batch.synthetic(mlm_batch.shapes(1, 8, 1), vocabulary)
        params = bert.init(dict(params=a, dropout=b), example)
        return TrainState.create(apply_fn=bert.apply, params=params["params"], tx=optimizer)

    def step(state, batch):
        def loss(params):
            key = jax.random.fold_in(jax.random.key(config.seed), state.step)
            return state.apply_fn({"params": params}, batch, rngs={"dropout": key})

        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    return initialize, step


def lower(config, mesh, phase, vocabulary: int, form: str):
    """Returns the step, lowered for the devices of `mesh` with donated state."""
    initialize, step = make(config, vocabulary, form)

    def placed(shapes, *axes):
        struct = functools.partial(jax.ShapeDtypeStruct, sharding=NamedSharding(mesh, P(*axes)))
        return jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), shapes)

    rows = mlm_batch.shapes(
        phase.batch, phase.length, phase.keys.max_predictions, phase.keys.max_packed
    )
    state = placed(jax.eval_shape(initialize))
    return jax.jit(step, donate_argnums=0).lower(state, placed(rows, ROWS))
