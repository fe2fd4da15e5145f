"""Near duplicates: documents that share most of their runs of five tokens with an earlier one.

Similarity is Jaccard's, of the sets of shingles, as estimated by MinHash signatures (Broder 1997): 128 values a
document, so with a standard deviation of at most 0.045. Signatures are cut into bands; two documents are compared if
they are equal in a band (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4), which sorting files finds.
"""

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparation import hashes, partitions
from bert_jax.data.preparation.partitions import Partitions
from bert_jax.data.preparation.shards import Group
from bert_jax.data.preparation.stages import Stages, read_alive
from bert_jax.data.preparation.workplace import whole_file

PERMUTATIONS = 128
SHINGLE = 5  # tokens
AT_A_TIME = 256  # shingles: their products with all permutations stay in the processor's cache
FOUND = 0.99  # least probability that documents as similar as the threshold are compared
NEIGHBOURS = 8  # documents before it that one is compared with, beside the first, where many are equal in a band
PAIRS = 1 << 15  # compared at a time: at most 256 MB of mapped pages


@functools.cache
def empty():
    """Datasketch's MinHash of no shingle. Its scheme fixes the bits; the library's default may change."""
    from datasketch import MinHash  # half a second, and only this filter needs it

    return MinHash(PERMUTATIONS, seed=1, hashfunc=int, scheme="affine32", gpu_mode="disable")


def signatures(tokens: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """uint32[len(ends), 128]; `ends` is where each document ends in `tokens`."""
    shingles = (hashes.windows(tokens, SHINGLE) >> np.uint64(32)).tolist()
    result = np.zeros((len(ends), PERMUTATIONS), np.uint32)
    start = 0
    for number, end in enumerate(ends.tolist()):
        own = shingles[start : max(start, end - SHINGLE + 1)]
        if not own:  # shorter than a shingle: all of it is one
            own = [int(hashes.sentences(tokens[start:end], np.array([end - start]))[0]) >> 32]
        sketch = empty().copy()
        for first in range(0, len(own), AT_A_TIME):
            sketch.update_batch(own[first : first + AT_A_TIME])
        result[number] = sketch.hashvalues
        start = end
    return result


def banding(threshold: float) -> tuple[int, int]:
    """(bands, rows a band): the most rows that leave documents of this similarity a probability of FOUND."""
    for rows in range(PERMUTATIONS, 1, -1):
        bands = PERMUTATIONS // rows
        if 1 - (1 - threshold**rows) ** bands >= FOUND:
            return bands, rows
    return PERMUTATIONS, 1


def similar(stages: Stages, alive: Path, threshold: float, documents: int) -> np.ndarray:
    """int64[N]: the documents of `alive` that are as similar to an earlier one of them, found or not.

    `documents` is how many there are in all. Memory holds, of each worker, one group of shards or one part.
    """
    bands, _ = banding(threshold)
    directory = stages.scratch / "signatures"
    directory.mkdir()
    spread = functools.partial(spread_bands, alive, directory, threshold)
    buckets, _ = stages.spread(spread, "bands", 2, documents * bands)
    # Pairs lie in the order of their later document, so that parts hold neighbours in the files.
    shift = 64 - max(1, (documents - 1).bit_length())
    pairs = partitions.make(stages.scratch / "pairs", 2, documents * bands)
    for _ in stages.take(functools.partial(spread_pairs, pairs, shift), buckets):
        pass
    kept = Signatures([(group.start, directory / f"{group.number:06d}") for group in stages.groups])
    compare = functools.partial(compare_pairs, kept, shift, threshold)
    found = [np.zeros(0, np.int64), *stages.take(compare, pairs)]
    shutil.rmtree(directory)
    return np.concatenate(found)


def spread_bands(
    alive: Path, directory: Path, threshold: float, made: Partitions, group: Group
) -> None:
    """Runs in a worker: writes the signatures of all documents, and the bands of those that are alive."""
    keys, numbers = [], []
    with whole_file(directory / f"{group.number:06d}") as file:
        for shard, kept in zip(group.shards, read_alive(alive, group), strict=True):
            (values,) = shard.read("signatures")
            file.write(values)
            documents = np.arange(shard.documents.start, shard.documents.stop, dtype=np.uint64)
            for of_band in band_keys(values[kept], threshold):
                keys.append(of_band)
                numbers.append(documents[kept])
    made.write(group.number, [np.concatenate(keys), np.concatenate(numbers)])


def spread_pairs(pairs: Partitions, shift: int, buckets: Partitions, part: int) -> None:
    """Runs in a worker: of documents that are equal in a band, writes which are to be compared."""
    later, earlier = candidates(buckets.read(part))
    pairs.write(part, [later << np.uint64(shift), earlier])


def compare_pairs(
    kept: "Signatures", shift: int, threshold: float, pairs: Partitions, part: int
) -> np.ndarray:
    """Runs in a worker: int64[N], the later ones of pairs that are as similar."""
    later, earlier = np.unique(pairs.read(part), axis=0).T
    later, earlier = (later >> np.uint64(shift)).astype(np.int64), earlier.astype(np.int64)
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(later), PAIRS):
        some = later[start : start + PAIRS], earlier[start : start + PAIRS]
        equal = (kept.read(some[0]) == kept.read(some[1])).mean(axis=1)
        found.append(some[0][equal >= threshold])
    return np.unique(np.concatenate(found))


class Signatures(NamedTuple):
    """Those of all documents: for each group of shards its first document and its file."""

    files: list[tuple[int, Path]]

    def read(self, documents: np.ndarray) -> np.ndarray:
        """uint32[N, 128] of documents int64[N]."""
        starts = np.array([start for start, _ in self.files])
        owners = np.searchsorted(starts, documents, side="right") - 1
        values = np.zeros((len(documents), PERMUTATIONS), np.uint32)
        for owner in np.unique(owners):
            start, path = self.files[owner]
            # Mapped anew, so that pages are let go.
            mapped = np.memmap(path, np.uint32, "r").reshape(-1, PERMUTATIONS)
            values[owners == owner] = mapped[documents[owners == owner] - start]
        return values


def band_keys(values: np.ndarray, threshold: float) -> Iterator[np.ndarray]:
    """uint64[D] for each band: equal where documents are equal in the band, and different between bands."""
    bands, rows = banding(threshold)
    for band in range(bands):
        yield hashes.rows(values[:, band * rows : (band + 1) * rows], salt=band)


def candidates(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(later, earlier) documents to compare, from records (key, document): a number in proportion to the records."""
    if not len(records):
        return records[:, 0], records[:, 1]
    records = records[np.lexsort((records[:, 1], records[:, 0]))]
    keys, numbers = records.T
    group = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    first = np.repeat(numbers[group], np.diff(group, append=len(keys)))
    pairs = [np.stack([numbers, first])[:, numbers != first]]
    for back in range(1, NEIGHBOURS + 1):
        same = keys[back:] == keys[:-back]
        pairs.append(np.stack([numbers[back:], numbers[:-back]])[:, same])
    later, earlier = np.concatenate(pairs, axis=1)
    return later, earlier
