"""Sentences that stand many times in a corpus: menus, licences, "This article is a stub"."""

import functools
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparation.partitions import Partitions
from bert_jax.data.preparation.shards import Group
from bert_jax.data.preparation.stages import Stages, read_alive

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


class Counted(NamedTuple):
    """Of the sentences of a part, as in Repeats."""

    sentences: int
    dropped: np.ndarray
    often: np.ndarray
    most: list[tuple[int, int]]


def count(stages: Stages, alive: Path, limit: int, sentences: int) -> Repeats:
    """Counts the sentences, of which there are at most so many, of the documents that are `alive`.

    `limit` of 0 drops none. Memory holds 8 bytes for each different sentence that is dropped or stands often.
    """
    spread = functools.partial(spread_sentences, alive)
    made, _ = stages.spread(spread, "sentences", 1, sentences)
    parts = list(stages.take(functools.partial(count_part, limit), made))
    most = sorted(chain(*(part.most for part in parts)), key=lambda pair: (-pair[0], pair[1]))
    return Repeats(
        sum(part.sentences for part in parts),
        np.concatenate([part.dropped for part in parts]),
        np.concatenate([part.often for part in parts]),
        most[:MOST],
    )


def spread_sentences(alive: Path, made: Partitions, group: Group) -> None:
    """Runs in a worker: writes the hashes of the sentences of documents that are alive."""
    found = []
    for shard, kept in zip(group.shards, read_alive(alive, group), strict=True):
        values, documents = shard.read("sentence_hashes", "documents")
        found.append(values[np.repeat(kept, documents)])
    made.write(group.number, [np.concatenate(found)])


def count_part(limit: int, made: Partitions, part: int) -> Counted:
    """Runs in a worker."""
    values, times = np.unique(made.read(part)[:, 0], return_counts=True)
    dropped = times > limit if limit else np.zeros(len(times), bool)
    sentences = int(times[dropped].sum())
    gone, values, times = values[dropped], values[~dropped], times[~dropped]
    top = np.argsort(-times, kind="stable")[:MOST]
    pairs = zip(times[top].tolist(), values[top].tolist(), strict=True)
    return Counted(sentences, gone, values[times > OFTEN], [(t, v) for t, v in pairs if t > 1])


def among(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """bool[len(values)]: which values are in `chosen`, which is sorted."""
    if not len(chosen):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(chosen, values), len(chosen) - 1)
    return chosen[places] == values
