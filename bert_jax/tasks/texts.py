"""Datasets of labelled texts: where the texts of an example are in its split's tokens, cut to fit into a row.

N examples, T texts of an example, B rows of a batch, S packed sequences of a row, L length.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.config_checks import check_keys, require
from bert_jax.data import batch, examples
from bert_jax.data.dataset import Dataset, Survey
from bert_jax.data.store import Split, Store, open_array
from bert_jax.objectives import scores


def check(config, metrics: Callable = scores.of_texts, least: int = 5) -> None:
    """Checks the keys of all tasks with texts; metrics: see objectives/scores.py.

    Raises BadInput, also for a phase with rows of fewer than `least` places: for texts and their special tokens.
    """
    check_keys(config, shares=["task.heldout"])
    scores.check(config, metrics)
    for name, phase in config.phases.items():
        hint = f"expected at least {least}"
        require(phase.length >= least, f"phases.{name}.length", config, hint)


class Targets(NamedTuple):
    """What an objective of labelled texts reads besides the arrays of the batch contract."""

    shapes: Callable  # (B, L) -> {name: jax.ShapeDtypeStruct}
    find: Callable  # (store, split, rows, L) -> {name: tensor[B, ...]}


def dataset(
    config,
    store: Store | None,
    targets: Targets,
    score: Callable,
    rows: Callable | None = None,
    paired: bool = False,
    sequences: int = 1,
) -> Dataset:
    """Returns the dataset of a store of examples.

    score: (split, outputs, rows) -> {metric: number}.
    rows: (Split, L) -> int64[R, S, 5 or more], which begin as `pack` says; by default those of the texts.
    paired: whether a sequence has two texts.    sequences: S.
    """
    splits = examples.split_names(config)

    def shapes(phase, rows: int) -> dict:
        return batch.shapes(rows, phase.length, sequences) | targets.shapes(rows, phase.length)

    def all_rows(phase, split: str, epoch: int) -> np.ndarray:
        return (rows or pairs)(store.splits[split], phase.length)

    def make(phase, split: str, rows, keys) -> dict:
        special = store.manifest["special"]
        made = gather(store, split, "tokens", rows, phase.length, special, paired)
        made |= targets.find(store, split, rows, phase.length)
        return {name: made[name] for name in shapes(phase, 1) if name in made}

    def survey(phase) -> Survey:
        found = all_rows(phase, splits[0], 0)
        share = float(sizes(found).mean() / phase.length)
        cut = float((sequence_sizes(found) == phase.length // sequences).mean())
        return Survey(share, f"{share:.0%} full, {cut:.1%} of the texts fill their places", [])

    return Dataset(shapes, splits, all_rows, make, survey, score, sizes)


def pairs(split: Split, length: int) -> np.ndarray:
    """Returns the rows of examples that all have the same number of texts; see `pack`."""
    return pack(split.sentence_ends.reshape(len(split.document_ends), -1), length)


def pack(ends: np.ndarray, length: int) -> np.ndarray:
    """Returns int64[N, S, 5] as assemble.gather reads it: the first text with each of the others, or alone.

    They are the start and size of the first text, of the second one or zeros, and the number of the example. Each
    sequence has 1 / S of the length. Of texts that are too long, tokens at the end of the longer one are cut, as in
    arXiv:1810.04805.

    ends: int64[N, T], where each text ends in the tokens of the split.
    """
    sizes = np.diff(ends.ravel(), prepend=0).reshape(ends.shape)
    starts, others = ends - sizes, ends.shape[1] - 1
    if not others:
        starts, sizes = (np.pad(array, [(0, 0), (0, 1)]) for array in (starts, sizes))
    room = length // max(1, others) - (3 if others else 2)
    a, b, numbers = sizes[:, :1], sizes[:, 1:], np.arange(len(ends))[:, None]
    b = np.minimum(b, np.maximum(room - a, room // 2))
    a = np.minimum(a, room - b)
    return np.stack(np.broadcast_arrays(starts[:, :1], a, starts[:, 1:], b, numbers), axis=2)


def gather(store: Store, split: str, name: str, rows, length: int, special: dict, paired=False):
    """Returns what assemble.gather makes of rows of a split's array NAME.npy, as long as its tokens."""
    from bert_jax.data import assemble

    array = assemble.map_file(store.splits[split].path / f"{name}.npy")
    return assemble.gather(array, rows[..., :5], length, special, paired)


def of_examples(dtype=np.int32, several: tuple = ()) -> Targets:
    """Returns the targets of examples, dtype[B, *several], and label_weights float32[B]."""

    def shapes(rows: int, length: int) -> dict:
        own = {"targets": jax.ShapeDtypeStruct((rows, *several), dtype)}
        return own | batch.structs({"label_weights": (rows,)})

    def find(store: Store, split: str, rows, length: int) -> dict:
        from bert_jax.data import assemble

        found = assemble.look_up(read_targets(store, split), rows[:, 0, 4])
        return {"targets": found, "label_weights": assemble.as_weights(rows[:, 0, 1] > 0)}

    return Targets(shapes, find)


def of_tokens() -> Targets:
    """Returns the targets of tokens, int32[B, L], and label_weights float32[B, L]: 0 where targets.npy has -1."""

    def shapes(rows: int, length: int) -> dict:
        return batch.structs({"targets label_weights": (rows, length)})

    def find(store: Store, split: str, rows, length: int) -> dict:
        from bert_jax.data import assemble

        special = dict.fromkeys(("cls", "sep", "pad"), -1)
        found = gather(store, split, "targets", rows, length, special)["tokens"]
        used = found >= 0
        weights = assemble.as_weights(used)
        return {"targets": assemble.as_ids(used) * found, "label_weights": weights}

    return Targets(shapes, find)


def read_targets(store: Store, split: str) -> np.ndarray:
    """Returns the targets of a split, mapped."""
    return open_array(store.splits[split].path / "targets.npy")


def score_examples(config, store: Store | None, predict: Callable) -> Callable:
    """Returns the function (split, outputs, rows) -> {metric: number}. predict: (label_logits) -> as targets.npy."""

    def score(split: str, outputs: dict, rows: np.ndarray) -> dict[str, float]:
        wanted, found = read_targets(store, split)[rows[:, 0, 4]], predict(outputs["label_logits"])
        return scores.compute(config.task.metrics, wanted, found)

    return score


def sizes(rows: np.ndarray) -> np.ndarray:
    """Returns the number of tokens of rows, int64[...]."""
    return sequence_sizes(rows).sum(axis=-1)


def sequence_sizes(rows: np.ndarray) -> np.ndarray:
    """Returns the number of tokens of each sequence of rows, int64[..., S], special tokens included."""
    return rows[..., 1] + rows[..., 3] + 2 + (rows[..., 3] > 0)
