"""The host's half of the abstraction: what an objective is computed on, as pure functions. Imports no TensorFlow.

B rows of a batch, R rows of an epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.registry import Interface

# The columns of a row as assemble.gather reads it: where text A begins in the tokens of its split, and its size; the
# same of B; and the label of the pair, or in supervised tasks the index of the row's example.
A_START, A_SIZE, B_START, B_SIZE, LABEL = range(5)
EXAMPLE = LABEL
SHARES = 8, 6, 4, 3, 2, 1  # sixteenths of a phase's length: the lengths of its shorter batches
MIN_LENGTH = 16  # the least length if only evaluated batches are cut


class Survey(NamedTuple):
    """The statistics of a sample of a phase's rows, and warnings."""

    real_token_share: float  # mean share of a row that is not padding; [CLS] and [SEP] are real
    text: str  # statistics for the log
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class Dataset(Interface):
    """The rows of a task's splits, and how a batch is made of them. phase: a config.Phase.

    Rows are whatever identifies them to `make`: int64[R, ...], an array or an object with `len` and indexing by an
    array of row numbers, such as one over mapped files.

    shapes: (phase, B) -> {name: jax.ShapeDtypeStruct}; opens no file. With the arrays `rows` and `row_weights`, which
        the stream adds: 0 for a row that only fills a batch. It multiplies all arrays `*_weights` by them.
    splits: names; the first is trained on, the others are evaluated, and reported by their names.
    rows: (phase, split, epoch) -> the rows of an epoch.
    make: (phase, split, rows int64[B, ...], keys uint32[B]) -> {name: tensor[B, ...]}; keys are for the draws of each
        row. It is traced as a TensorFlow graph, and composes functions of assemble.py and masking.py.
    survey: (phase) -> Survey; raises BadInput if a run cannot work.
    score: (split, outputs, rows) -> {metric: number, or a text about one} of a whole split, for what is no mean. On the
        host, from the outputs of the objective as arrays and the rows in the same order. It is there without a store.
    review: (split, outputs, rows, N) -> {samples, tables} about the predictions of a whole split, as `score` gets
        them, for samples.jsonl and the report of a run: the samples of the first N rows (runs/samples.py), and {title:
        [heads, *rows]} of texts and numbers.
    sequences: (phase) -> sequences packed in a row, at most, on which the choice of attention depends; 0: not known.
    ranges: (size of the vocabulary) -> {name: exclusive upper bound} of the task's own arrays of ids: `benchmark` draws
        them below it, and a batch with others ends the run.
    sizes: (rows) -> int64[...], tokens of each; if given, batches have rows of similar sizes, cut to one of `lengths`.
    cuts_training: whether batches to train on are cut, too. False if their rows are full.
    group: (rows) -> int64[R], equal for rows that are scored together, such as the windows of a text: an evaluation of
        a part of the rows has all of them or none.
    factors: (mixture) -> {source: factor} of the sources whose rows a phase with this mixture has, see mixture.py.
    """

    shapes: Callable
    splits: tuple
    rows: Callable
    make: Callable
    survey: Callable | None = None
    score: Callable | None = None
    review: Callable | None = None
    sequences: Callable = lambda phase: 0
    ranges: Callable = lambda vocabulary: {}
    sizes: Callable | None = None
    cuts_training: bool = True
    group: Callable | None = None
    factors: Callable = lambda mixture: {}

    def sizes_of(self, split: str) -> Callable | None:
        """Returns `sizes` if the batches of a split are cut."""
        if self.cuts_training or split != self.splits[0]:
            return self.sizes
        return None

    def lengths(self, phase, split: str) -> list[int]:
        """Returns the lengths of the batches of a split in a phase, increasing.

        If batches are cut, they are fractions of the phase's length, in multiples of 8: of SHARES, or halves of halves
        if only evaluated ones are cut.
        """
        if not self.sizes_of(split):
            return [phase.length]
        result = {phase.length}
        if self.cuts_training:
            for share in SHARES:
                multiple = -(-phase.length * share // 128) * 8
                result.add(min(phase.length, multiple))
        else:
            while min(result) > MIN_LENGTH:
                result.add(-(-min(result) // 16) * 8)
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
