"""Documents of equal ids: found by sorting partitions of their hashes; the earliest one is the first of its group."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparing.partitions import Partitions


class Equals(NamedTuple):
    """Some documents in the order of their hashes, equal ones in the order of the corpus."""

    documents: np.ndarray  # int64[N]  their numbers
    first: np.ndarray  # bool[N]  whether one is the first of its group


def groups(hashed: Iterable[tuple[np.ndarray, np.ndarray]], scratch: Path) -> Iterator[Equals]:
    """From (int64[N] documents, uint64[N, 2] hashes), documents in the order of their hashes; a partition at a time."""
    with Partitions(scratch / "hashes", 3) as partitions:
        for documents, hashes in hashed:
            partitions.add(hashes[:, 0], hashes[:, 1], documents.astype(np.uint64))
    for records in partitions:
        high, low, documents = records[np.lexsort(records.T[[2, 1, 0]])].T
        other = (np.diff(high) != 0) | (np.diff(low) != 0)
        yield Equals(documents.astype(np.int64), np.concatenate([[True], other])[: len(documents)])
