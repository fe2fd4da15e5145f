"""The batch contract: the arrays that every objective reads. Imports no TensorFlow.

B rows over all hosts, L length, S sequences packed in a row (1 without packing).

    tokens            int32[B, L]
    segments          int32[B, L]    0 sentence A, 1 sentence B
    positions         int32[B, L]    restart at 0 in every packed sequence
    sequence_ids      int32[B, L]    0 padding, 1.. the packed sequence; attention stays within a sequence
    cls_positions     int32[B, S]    where the packed sequences begin
    rows              int32[B]       the row's number in the global batch, which keys dropout and other draws; in
                                     evaluations among all rows
    row_weights       float32[B]     0 for a row that only fills the batch: all its other weights are 0, too

A task adds arrays of its own. Those whose names end in `_weights` are weights. Another sequence of tokens, such as a
target, has a prefix X:

    X_tokens          ids of the vocabulary
    X_positions       below the length of X_tokens; without such, positions in `tokens`
    X_sequence_ids    as sequence_ids; above 0 are real tokens
"""

import hashlib

import jax
import numpy as np

from bert_jax.errors import BadInput


def shapes(batch: int, length: int, sequences: int = 1) -> dict:
    """Returns {name: jax.ShapeDtypeStruct} of the arrays of the contract."""
    arrays = {
        "tokens segments positions sequence_ids": (batch, length),
        "cls_positions": (batch, sequences),
        "rows row_weights": (batch,),
    }
    return structs(arrays)


def structs(arrays: dict[str, tuple]) -> dict:
    """Converts {names: shape} to {name: jax.ShapeDtypeStruct}: float32 for weights, int32 for others."""
    result = {}
    for names, shape in arrays.items():
        for name in names.split():
            dtype = np.float32 if name.endswith("_weights") else np.int32
            result[name] = jax.ShapeDtypeStruct(shape, dtype)
    return result


def zeros(shapes: dict) -> dict[str, np.ndarray]:
    """Returns arrays of zeros. shapes: {name: jax.ShapeDtypeStruct}."""
    return {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}


def synthetic(shapes: dict, vocabulary: int, ranges=()) -> dict:
    """Returns a batch of random tokens and targets for benchmarks, without padding.

    Segments are 0, since a model may have only one; the other arrays are ones.

    ranges: {name: exclusive upper bound} of the arrays of ids of a task, see Dataset.ranges.
    """
    ranges = dict(ranges)
    draw = np.random.default_rng(0)
    arrays = {}
    for name, leaf in shapes.items():
        tokens = name.replace("positions", "tokens")
        if name in ranges:
            array = draw.integers(0, ranges[name], leaf.shape)
        elif name == "rows" or (name != tokens and tokens in shapes):
            array = np.broadcast_to(np.arange(leaf.shape[-1]), leaf.shape)
        elif name == "tokens" or name.endswith(("_tokens", "_targets")):
            array = draw.integers(0, vocabulary, leaf.shape)
        elif name.endswith("_positions"):
            array = draw.integers(0, shapes["tokens"].shape[1], leaf.shape)
        else:
            array = np.full(leaf.shape, name != "segments")
        arrays[name] = np.asarray(array, leaf.dtype)
    return arrays


def check_ids(config, vocabulary: int, arrays: dict, ranges=()) -> None:
    """Raises BadInput for ids in the arrays of a batch that the model or the task does not have.

    A lookup would take other rows for them, without gradients. vocabulary: its size. ranges: see `synthetic`.
    """
    model = config.model
    limits = {
        "tokens": vocabulary,
        "segments": model.get("type_vocabulary"),
        "targets": len(config.task.get("labels", ())),
        # By the ends of names.
        "_tokens": vocabulary,
        "_targets": vocabulary,
        "_positions": arrays["tokens"].shape[1],
    }
    if model.get("positions") == "learned":
        limits["positions"] = model.get("max_length")
    for name, array in arrays.items():
        if name.endswith("_tokens"):
            limits[name.replace("tokens", "positions")] = array.shape[1]
    limits |= dict(ranges)
    for name, array in arrays.items():
        _, mark, end = name.rpartition("_")
        limit = limits.get(name) or limits.get(mark + end)
        if not limit or array.dtype != np.int32:
            continue
        if name == "targets" and "label_weights" in arrays:
            array = np.where(arrays["label_weights"] > 0, array, 0)
        least = array.min()
        most = array.max()
        if not 0 <= least <= most < limit:
            hint = f"{name} has {least} to {most}, expected 0 to {limit - 1}"
            raise BadInput(f"config.task.name={config.task.name!r}: {hint}")


def positions_or_all(positions, batch: int) -> np.ndarray:
    """Returns positions of rows of a batch as an array; None means all rows."""
    if positions is None:
        return np.arange(batch)
    return np.asarray(positions)


def weighted(arrays: dict, rows: np.ndarray, used: np.ndarray) -> dict:
    """Adds rows, int[B], and row_weights to a batch, and multiplies its weights by them.

    used: bool[B]; False for a row that only fills the batch.
    """
    weights = used.astype(np.float32)
    result = arrays | {"rows": rows.astype(np.int32), "row_weights": weights}
    for name, array in arrays.items():
        if name.endswith("_weights"):
            result[name] = (array.T * weights).T
    return result


def join(outputs: list[dict]) -> dict[str, np.ndarray]:
    """Concatenates the outputs of batches, [B, ...] or [B, L, ...] of several lengths L, padded with zeros."""

    def concatenate(*arrays):
        longest = np.max([array.shape[1:] for array in arrays], axis=0)
        padded = []
        for array in arrays:
            sizes = 0, *(longest - array.shape[1:])
            padded.append(np.pad(array, [(0, size) for size in sizes]))
        return np.concatenate(padded)

    return jax.tree.map(concatenate, *outputs)


def digest(batch: dict) -> str:
    """Returns the SHA-256 of the names and bytes of a batch's arrays, in hex."""
    sha = hashlib.sha256()
    for name in sorted(batch):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(batch[name]).tobytes())
    return sha.hexdigest()
