"""The batch contract: the arrays that every encoder objective reads. Imports no TensorFlow.

B rows over all hosts, L length, P predictions per row, S sequences packed in a row (1 without packing).

    tokens            int32[B, L]    after masking
    segments          int32[B, L]    0 sentence A, 1 sentence B
    positions         int32[B, L]    restart at 0 in every packed sequence
    sequence_ids      int32[B, L]    0 padding, 1.. the packed sequence; attention stays within a sequence
    masked_positions  int32[B, P]    position in the row; 0 where the weight is 0
    masked_targets    int32[B, P]
    masked_weights    float32[B, P]
    cls_positions     int32[B, S]
    pair_labels       int32[B, S]    NSP: 0 the next sentence, 1 a random one. SOP: 0 in order, 1 swapped
    pair_weights      float32[B, S]
    rows              int32[B]       the row's number in the global batch; dropout is keyed by it
"""

import hashlib

import jax
import numpy as np


def shapes(batch: int, length: int, predictions: int, sequences: int = 1) -> dict:
    """Returns {name: jax.ShapeDtypeStruct} of a batch. predictions, sequences: per row."""
    by_axes = (
        ((batch, length), "tokens segments positions sequence_ids"),
        ((batch, predictions), "masked_positions masked_targets masked_weights"),
        ((batch, sequences), "cls_positions pair_labels pair_weights"),
        ((batch,), "rows"),
    )
    return {
        name: jax.ShapeDtypeStruct(shape, np.float32 if name.endswith("weights") else np.int32)
        for shape, names in by_axes
        for name in names.split()
    }


def synthetic(
    batch: int, length: int, predictions: int, vocabulary: int, seed: int = 0, sequences: int = 1
) -> dict:
    """Returns a batch of random tokens for benchmarks and tests, without padding and with all predictions used.

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
    )
    expected = shapes(batch, length, predictions, sequences)
    return {name: np.asarray(array, expected[name].dtype) for name, array in arrays.items()}


def zero_padding_rows(batch: dict, used: np.ndarray) -> dict:
    """Returns the batch with weights 0 in its padding rows, those that are not `used`, bool[B]."""
    weights = used[:, None].astype(np.float32)
    return batch | {name: batch[name] * weights for name in ("masked_weights", "pair_weights")}


def digest(batch: dict) -> str:
    """Returns the SHA-256 of the names and bytes of a batch's arrays, in hex."""
    sha = hashlib.sha256()
    for name in sorted(batch):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(batch[name]).tobytes())
    return sha.hexdigest()
