"""Near duplicates: documents that share most of their runs of five tokens with an earlier one.

Similarity is Jaccard's, of the sets of shingles, as estimated by MinHash signatures (Broder 1997): 128 values a
document, so with a standard deviation of at most 0.045. Signatures are cut into bands; two documents are compared if
they are equal in a band (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4), which sorting files finds.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.data.preparing import hashes
from bert_jax.data.preparing.partitions import Partitions
from bert_jax.data.preparing.shards import Shards

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


def similar(shards: Shards, alive: np.ndarray, threshold: float, scratch: Path) -> np.ndarray:
    """bool[documents]: those of `alive` (bool[documents]) that are as similar to an earlier one of them, found or not.

    Memory holds one byte a document, one shard and one partition.
    """
    found = np.zeros(len(alive), bool)
    path = scratch / "signatures"
    with Partitions(scratch / "bands", 2) as buckets, open(path, "wb") as file:
        for shard in shards:
            (values,) = shard.read("signatures")
            file.write(values)
            kept = alive[shard.documents]
            numbers = np.arange(shard.documents.start, shard.documents.stop, dtype=np.uint64)
            for keys in band_keys(values[kept], threshold):
                buckets.add(keys, numbers[kept])
    # Pairs lie in the order of their later document, so that partitions hold neighbours in the file.
    shift = np.uint64(64 - max(1, (len(alive) - 1).bit_length()))
    with Partitions(scratch / "pairs", 2) as pairs:
        for records in buckets:
            later, earlier = candidates(records)
            pairs.add(later << shift, earlier)
    for records in pairs:
        later, earlier = np.unique(records, axis=0).T
        for start in range(0, len(later), PAIRS):
            chosen = slice(start, start + PAIRS)
            pair = (later[chosen] >> shift).astype(np.int64), earlier[chosen].astype(np.int64)
            found[pair[0][similarity(path, *pair) >= threshold]] = True
    path.unlink()
    return found


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


def similarity(path: Path, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """float64[N]: the estimated similarity of pairs of documents by the file of signatures."""
    values = np.memmap(path, np.uint32, "r").reshape(
        -1, PERMUTATIONS
    )  # mapped anew: pages are let go
    return (values[later] == values[earlier]).mean(axis=1)
