"""The host's half of the abstraction: what an objective is computed on, as pure functions. Imports no TensorFlow.

B rows of a batch, R rows of an epoch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax import prng

# The columns of a row as assemble.gather reads it: where text A begins in the tokens of its split, and its size; the
# same of B; and the label of the pair.
A_START, A_SIZE, B_START, B_SIZE, LABEL = range(5)


class Survey(NamedTuple):
    """The statistics of a sample of a phase's rows, and warnings."""

    real_token_share: float  # mean share of a row that is not padding; [CLS] and [SEP] are real
    text: str  # statistics for the log
    warnings: list[str]


class Dataset(NamedTuple):
    """The rows of a task's splits, and how a batch is made of them. phase: a config.Phase.

    Rows are whatever identifies them to `make`: int64[R, ...], an array or an object with `len` and indexing by an
    array of row numbers, such as one over mapped files. `make` is traced as a TensorFlow graph; it composes functions
    of assemble.py and masking.py. keys are uint32[B], one for the draws of each row.
    """

    shapes: Callable  # (phase, B) -> {name: jax.ShapeDtypeStruct}; opens no file
    splits: tuple[str, ...]  # the first is trained on, the others are evaluated
    rows: Callable  # (phase, split, epoch) -> the rows of an epoch
    make: Callable  # (phase, split, rows int64[B, ...], keys) -> {name: tensor[B, ...]}
    survey: Callable | None = None  # (phase) -> Survey; raises BadInput if a run cannot work
    # (split, outputs, rows) -> {metric: number, or a text about one}, on the host
    score: Callable | None = None
    # (phase) -> sequences packed in a row, at most, on which the choice of attention depends; 0: not known
    sequences: Callable = lambda phase: 0
    # (size of the vocabulary) -> {name: exclusive upper bound} of the task's own arrays of ids
    ranges: Callable = lambda vocabulary: {}
    # (rows) -> int64[...], tokens of each; if given, batches have rows of similar sizes, cut to one of `lengths`
    sizes: Callable | None = None
    # whether batches to train on are cut, too. False if their rows are full
    cuts_training: bool = True
    # (rows) -> int64[R], equal for rows that are scored together, such as the windows of a text: an evaluation of a
    # part of the rows has all of them or none
    group: Callable | None = None
    # (mixture) -> {source: factor} of the sources whose rows a phase with this mixture has, see mixture.py
    factors: Callable = lambda mixture: {}


SHARES = 8, 6, 4, 3, 2, 1  # sixteenths of a phase's length: the lengths of its shorter batches
LEAST = 16  # the least length if only evaluated batches are cut


def sizes_of(dataset: Dataset, split: str) -> Callable | None:
    """Returns `sizes` if the batches of a split are cut."""
    is_full = not dataset.cuts_training and split == dataset.splits[0]
    return None if is_full else dataset.sizes


def lengths(dataset: Dataset, phase, split: str) -> list[int]:
    """Returns the lengths of the batches of a split in a phase, increasing.

    If batches are cut, they are fractions of the phase's length, in multiples of 8: of SHARES, or halves of halves if
    only evaluated ones are cut.
    """
    result = {phase.length}
    if not dataset.cuts_training and sizes_of(dataset, split):
        while min(result) > LEAST:
            result.add(-(-min(result) // 16) * 8)
    elif sizes_of(dataset, split):
        for share in SHARES:
            multiple = -(-phase.length * share // 128) * 8
            result.add(min(phase.length, multiple))
    return sorted(result)


def draw_key(seed: int, purpose: str, split: int, phase: int, epoch: int) -> np.ndarray:
    """Returns the key of a purpose in an epoch of a split: uint32[1], since NumPy warns when scalars overflow.

    purpose: any name, see `prng.purpose`.
    split: its index in `splits`. Rows that are evaluated depend neither on the seed nor on the number of the phase, so
    that runs with other seeds are evaluated on the same rows.
    """
    if split:
        seed = phase = 0
    return np.full(1, prng.key(seed, prng.purpose(purpose), split, phase, epoch))
