"""Sentences that stand many times in a corpus: menus, licences, "This article is a stub"."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparing.partitions import Partitions
from bert_jax.data.preparing.shards import Shards

OFTEN = 100  # the report tells the share of tokens in sentences that stand more often
MOST = 5  # sentences that it shows


class Repeats(NamedTuple):
    """What is known of sentences by their hashes, counted over the documents that are kept."""

    sentences: int  # how many are dropped
    dropped: np.ndarray  # uint64[N], sorted: more often than the filter lets stand
    often: np.ndarray  # uint64[N], sorted: more than OFTEN times, and not dropped
    most: list[
        tuple[int, int]
    ]  # (times, hash) of the most repeated that are not dropped, most first


def count(shards: Shards, alive: np.ndarray, limit: int, scratch: Path) -> Repeats:
    """Counts the sentences of the documents that are `alive`; `limit` of 0 drops none.

    Memory holds a partition, and 8 bytes for each different sentence that is dropped or stands often.
    """
    with Partitions(scratch / "sentences", 1) as partitions:
        for shard in shards:
            values, documents = shard.read("sentence_hashes", "documents")
            partitions.add(values[np.repeat(alive[shard.documents], documents)])
    sentences, dropped, often, most = 0, [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)], []
    for records in partitions:
        values, times = np.unique(records[:, 0], return_counts=True)
        if limit:
            sentences += int(times[times > limit].sum())
            dropped.append(values[times > limit])
            values, times = values[times <= limit], times[times <= limit]
        often.append(values[times > OFTEN])
        top = np.argsort(-times, kind="stable")[:MOST]
        most += zip(times[top].tolist(), values[top].tolist(), strict=True)
        most = sorted(((t, v) for t, v in most if t > 1), key=lambda pair: (-pair[0], pair[1]))
        most = most[:MOST]
    return Repeats(sentences, np.concatenate(dropped), np.concatenate(often), most)


def among(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """bool[len(values)]: which values are in `chosen`, which is sorted."""
    if not len(chosen):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(chosen, values), len(chosen) - 1)
    return chosen[places] == values
