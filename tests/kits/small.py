"""The small model of the tests: a config of width 32 and two layers, its objective, and batches with padding."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from kits import corpora

from bert_jax import config, optimizer
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

VOCABULARY = Vocabulary(size=200, pad=0, unk=1, cls=2, sep=3, mask=4)


# The keys that make `demo` small, with all dropout on.
SMALL = {
    "dtype": "float32",
    "compilation_cache": "",
    "corpus.format": "lines",
    "corpus.heldout": 0.1,
    "corpus.workers": 1,
    "tokenizer.size": 200,
    "model.width": 32,
    "model.heads": 4,
    "model.max_length": 32,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "optimizer.learning_rate": 3e-3,
    "optimizer.beta2": 0.999,
    "optimizer.bias_correction": False,
    "schedule.warmup": 5,
    "phases.main.steps": 20,
    "phases.main.length": 32,
    "phases.main.batch": 16,
    "phases.main.max_predictions": 5,
    "log.every": 5,
    "log.report": False,  # takes two seconds
    "evaluate.every": 10,
    "evaluate.rows": 24,
    "checkpoint.every": 10,
    "checkpoint.keep": 2,
}


# Overrides for a small ModernBERT.
MODERN = ("model.name=modernbert", "model.layers=4", "model.feed_forward=48", "model.window=8")
# Overrides for a small RoBERTa.
ROBERTA = ("model.name=roberta", "model.layers=2")
# Overrides for a small ALBERT, with dropout.
ALBERT = ("model.name=albert", "model.embedding_width=16", "model.layers=3", "model.dropout=0.1")
ALBERT += ("model.attention_dropout=0.1",)
# Overrides for a small ELECTRA, whose generator and discriminator have a projection of the embeddings.
ELECTRA = ("model.name=electra", "model.embedding_width=16", "objective.name=replaced_tokens")
ELECTRA += ("task.pair_task=none", "task.mask_share=0.85", "task.random_share=0.0")
# {the beginning of an override: the keys of SMALL that there are no more}
LOST = {
    "task.name=": ("phases.main.max_predictions",),
    "model.name=": ("model.attention_dropout",),
    "optimizer.name=adafactor": ("optimizer.beta2", "optimizer.bias_correction"),
    "optimizer.name=stable_adamw": ("optimizer.bias_correction",),
    "optimizer.name=muon": ("optimizer.bias_correction",),
}


def rate_of(name: str, peak: float, warmup: int, total: int, decay=0, phases=(), numpy=jnp):
    """Returns the function step -> learning rate of one schedule. Without phases, it has one of `total` steps."""
    phases = list(phases) or [config.Phase("main", 0, 0, total, 1, 1, None)]
    schedule = config.Schedule("schedule", name, peak, warmup, decay, 0.0, phases)
    return optimizer.rate_of([schedule], numpy)


def overrides(settings: dict) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def small_config(*changes):
    """Returns the small config with these overrides; they may name another task and another model."""
    lost = [LOST[start] for start in LOST if any(change.startswith(start) for change in changes)]
    keys = {key: value for key, value in SMALL.items() if key not in sum(lost, ())}
    return config.load("demo", [*overrides(keys), *changes])


def mesh_keys(shape) -> list[str]:
    """Returns overrides for a mesh with these sizes of data, fsdp and tensor."""
    return [f"mesh.{name}={size}" for name, size in zip(meshes.AXES, shape, strict=True)]


def mesh_of(shape, devices=None):
    """Returns a mesh with these sizes, of the given devices or the first ones of this process."""
    devices = jax.devices()[: math.prod(shape)] if devices is None else devices
    return meshes.make_mesh(small_config(*mesh_keys(shape)), devices)


def synthetic(
    batch: int, length: int, predictions: int, vocabulary: int, seed: int = 0, sequences: int = 1
) -> dict:
    """Returns a batch of random tokens without padding and with all predictions used.

    Each row holds `sequences` pairs of about equal length.
    """
    draw = np.random.default_rng(seed)
    starts = -(-np.arange(sequences + 1) * length // sequences)
    owner = np.broadcast_to(np.arange(length) * sequences // length, (batch, length))
    positions = np.arange(length) - starts[owner]
    order = np.argsort(draw.random((batch, length - 2)), axis=1)[:, :predictions] + 1
    arrays = dict(
        tokens=draw.integers(5, vocabulary, (batch, length)),
        segments=positions >= np.diff(starts)[owner] // 2,
        positions=positions,
        sequence_ids=owner + 1,
        masked_positions=np.sort(order, axis=1),
        masked_targets=draw.integers(5, vocabulary, (batch, predictions)),
        masked_weights=np.ones((batch, predictions)),
        cls_positions=np.broadcast_to(starts[:-1], (batch, sequences)),
        pair_labels=draw.integers(0, 2, (batch, sequences)),
        pair_weights=np.ones((batch, sequences)),
        rows=np.arange(batch),
        row_weights=np.ones(batch),
    )
    expected = mlm_batch.shapes(batch, length, predictions, sequences)
    return {name: np.asarray(array, expected[name].dtype) for name, array in arrays.items()}


def small_batch(rows: int = 16, length: int = 32, predictions: int = 5, seed: int = 0) -> dict:
    """Returns rows of different lengths with different numbers of masked positions."""
    arrays = synthetic(rows, length, predictions, VOCABULARY.size, seed)
    draw = np.random.default_rng(seed + 1)
    lengths = draw.integers(length // 2, length + 1, rows)
    real = np.arange(length) < lengths[:, None]
    arrays["sequence_ids"] = real.astype(np.int32)
    arrays["tokens"] = np.where(real, arrays["tokens"], VOCABULARY.pad).astype(np.int32)
    arrays["positions"] = np.where(real, arrays["positions"], 0).astype(np.int32)
    used = np.arange(predictions) < draw.integers(1, predictions + 1, rows)[:, None]
    inside = arrays["masked_positions"] < lengths[:, None]
    weights = (used & inside).astype(np.float32)
    arrays["masked_weights"] = weights
    arrays["masked_positions"] = np.where(weights, arrays["masked_positions"], 0).astype(np.int32)
    np.put_along_axis(arrays["tokens"], arrays["masked_positions"], VOCABULARY.mask, axis=1)
    return arrays


def small_objective(*overrides):
    return base.make(small_config(*overrides), VOCABULARY)


def loss_of(objective, key: int = 3):
    """Returns the function (params, rows) -> loss in training, with the dropout of a key."""

    def loss(params, rows):
        totals = objective.weights(rows)
        return objective.loss(params, rows, totals, jax.numpy.uint32(key), train=True)[0]

    return loss


def small_params(objective, seed: int = 0):
    return jax.jit(objective.init)(jax.random.key(seed), small_batch())


def write_corpus(path, documents: int, seed: int = 0) -> None:
    """Writes a text file of random documents, one sentence per line."""
    corpora.write(path, corpora.make_text(documents, seed))
