"""Documents of equal ids: found by sorting parts of their hashes; the earliest one is the first of its group."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparation.partitions import Partitions
from bert_jax.data.preparation.stages import Stages


class Equals(NamedTuple):
    """Some documents in the order of their hashes, equal ones in the order of the corpus."""

    documents: np.ndarray  # int64[N]  their numbers
    first: np.ndarray  # bool[N]  whether one is the first of its group


def write(made: Partitions, group: int, documents: np.ndarray, hashes: np.ndarray) -> None:
    """The numbers int64[N] of some documents, and their hashes uint64[N, 2], to be compared with all others."""
    made.write(group, [hashes[:, 0], hashes[:, 1], documents.astype(np.uint64)])


def groups(stages: Stages, made: Partitions) -> Iterator[Equals]:
    """All that was written, in the order of the hashes; a part at a time."""
    return stages.take(compare, made)


def compare(made: Partitions, part: int) -> Equals:
    """Runs in a worker."""
    records = made.read(part)
    high, low, documents = records[np.lexsort(records.T[[2, 1, 0]])].T
    other = (np.diff(high) != 0) | (np.diff(low) != 0)
    return Equals(documents.astype(np.int64), np.concatenate([[True], other])[: len(documents)])
