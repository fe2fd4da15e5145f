"""Which documents go where: duplicates out, repeated sentences out, held-out documents apart.

equal documents -> near duplicates -> repeated sentences -> equal documents again -> held out by smallest hashes
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparation import duplicates, hashes, near, repeats
from bert_jax.data.preparation.partitions import Partitions
from bert_jax.data.preparation.shards import Group, Shards
from bert_jax.data.preparation.stages import Stages, read_alive
from bert_jax.errors import BadInput

TRAIN, HELDOUT, DUPLICATE, NEAR, EMPTIED = range(5)  # the first two are the splits, as numbers


class Chosen(NamedTuple):
    state: np.ndarray  # uint8[documents]: TRAIN, HELDOUT, or why it is left out
    repeats: repeats.Repeats


def choose(shards: Shards, filters, share: float, scratch: Path, run: Callable) -> Chosen:
    """Where each document goes, by `config.filter` and `config.corpus.heldout`; raises BadInput if too few are left.

    Held out are the documents with the smallest hashes: a function of content, not of order. Documents that are equal,
    once the repeated sentences are out, fall into the same split. `run` maps a function over tasks, in order.
    """
    stages = Stages(run, shards.groups(), scratch)
    state = np.full(shards.documents, TRAIN, np.uint8)
    if filters.duplicates:
        stored = functools.partial(spread_stored, stages.leave(state == TRAIN))
        made, _ = stages.spread(stored, "hashes", 3, shards.documents)
        for group in duplicates.groups(stages, made):
            state[group.documents[~group.first]] = DUPLICATE
    if filters.near_duplicates:
        alive = stages.leave(state == TRAIN)
        state[near.similar(stages, alive, filters.near_duplicates, shards.documents)] = NEAR
    alive = stages.leave(state == TRAIN)
    repeated = repeats.count(stages, alive, filters.repeats, shards.counts["sentences"])
    if len(repeated.dropped):
        np.save(scratch / "dropped.npy", repeated.dropped)
        spread = functools.partial(spread_shortened, alive, scratch / "dropped.npy")
    else:
        spread = functools.partial(spread_stored, alive)
    made, emptied = stages.spread(spread, "left", 3, shards.documents)
    for documents in emptied:
        state[documents] = EMPTIED
    hold_out(duplicates.groups(stages, made), state, share, filters.duplicates, shards.problems)
    return Chosen(state, repeated)


def spread_stored(alive: Path, made: Partitions, group: Group) -> np.ndarray:
    """Runs in a worker: writes the hashes of the documents that are not left out yet; returns those of no sentences."""
    numbers, values = [], []
    for shard, kept in zip(group.shards, read_alive(alive, group), strict=True):
        (stored,) = shard.read("hashes")
        numbers.append(shard.documents.start + np.flatnonzero(kept))
        values.append(stored[kept])
    duplicates.write(made, group.number, np.concatenate(numbers), np.concatenate(values))
    return np.zeros(0, np.int64)


def spread_shortened(alive: Path, dropped: Path, made: Partitions, group: Group) -> np.ndarray:
    """The same, of what is left of them without the sentences whose hashes are in the file `dropped`."""
    gone, numbers, values, emptied = np.load(dropped), [], [], []
    for shard, there in zip(group.shards, read_alive(alive, group), strict=True):
        tokens, sentences, documents, of_sentences = shard.read(
            "tokens", "sentences", "documents", "sentence_hashes"
        )
        kept = ~repeats.among(of_sentences, gone) & np.repeat(there, documents)
        tokens, sentences, documents = select(tokens, sentences, documents, kept)
        emptied.append(shard.documents.start + np.flatnonzero(there & (documents == 0)))
        stops = np.cumsum(sentences, dtype=np.int64)[np.cumsum(documents[documents > 0]) - 1]
        numbers.append(shard.documents.start + np.flatnonzero(documents))
        values.append(hashes.documents(tokens, stops))
    duplicates.write(made, group.number, np.concatenate(numbers), np.concatenate(values))
    return np.concatenate(emptied)


def select(
    tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sentences that `kept` (bool[S]) names, of all documents, whose number stays: lengths may become 0."""
    owners = np.repeat(np.arange(len(documents)), documents)
    left = np.bincount(owners[kept], minlength=len(documents))
    return tokens[np.repeat(kept, sentences)], sentences[kept], left


def hold_out(
    groups: Iterator[duplicates.Equals], state: np.ndarray, share: float, drop: bool, problems: dict
) -> None:
    """Marks the held-out documents and, where `drop`, the later ones of equal documents."""
    smallest, different = [], 0
    for documents, first in groups:
        if drop:
            state[documents[~first]] = DUPLICATE
        if different < max(2, share * len(state)):  # more are not wanted in any case
            smallest.append((documents, different + np.cumsum(first) - 1))
        different += int(first.sum())
    check_number(different, problems)
    wanted = min(max(2, round(share * different)), different - 2)
    for documents, numbers in smallest:
        documents = documents[numbers < wanted]
        state[documents[state[documents] == TRAIN]] = HELDOUT


def check_number(documents: int, problems: dict) -> None:
    if documents < 4:
        what = "no document" if not documents else f"{documents} document{'s' * (documents > 1)}"
        reasons = "".join(f", {number} {reason}" for reason, number in sorted(problems.items()))
        raise BadInput(
            f"corpus: {what} with text{reasons}; two to train on and two held out are the least;"
            " is config.corpus.format right?"
        )
