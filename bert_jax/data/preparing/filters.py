"""Which documents go where: duplicates out, repeated sentences out, held-out documents apart.

equal documents -> near duplicates -> repeated sentences -> equal documents again -> held out by smallest hashes
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparing import duplicates, hashes, near, repeats
from bert_jax.data.preparing.shards import Shards
from bert_jax.errors import BadInput

TRAIN, HELDOUT, DUPLICATE, NEAR, EMPTIED = range(5)  # the first two are the splits, as numbers

Hashed = Iterator[tuple[np.ndarray, np.ndarray]]  # int64[N] documents, uint64[N, 2] of their ids


class Chosen(NamedTuple):
    state: np.ndarray  # uint8[documents]: TRAIN, HELDOUT, or why it is left out
    repeats: repeats.Repeats


def choose(shards: Shards, filters, share: float, scratch: Path) -> Chosen:
    """Where each document goes, by `config.filter` and `config.corpus.heldout`; raises BadInput if too few are left.

    Held out are the documents with the smallest hashes: a function of content, not of order. Documents that are equal,
    once the repeated sentences are out, fall into the same split.
    """
    state = np.full(shards.documents, TRAIN, np.uint8)
    if filters.duplicates:
        for group in duplicates.groups(stored(shards, state), scratch):
            state[group.documents[~group.first]] = DUPLICATE
    if filters.near_duplicates:
        found = near.similar(shards, state == TRAIN, filters.near_duplicates, scratch)
        state[found] = NEAR
    repeated = repeats.count(shards, state == TRAIN, filters.repeats, scratch)
    short = shortened(shards, state, repeated.dropped)
    hashed = short if len(repeated.dropped) else stored(shards, state)
    hold_out(duplicates.groups(hashed, scratch), state, share, filters.duplicates, shards.problems)
    return Chosen(state, repeated)


def stored(shards: Shards, state: np.ndarray) -> Hashed:
    """Of the documents that are not left out yet."""
    for shard in shards:
        kept = state[shard.documents] == TRAIN
        (values,) = shard.read("hashes")
        yield shard.documents.start + np.flatnonzero(kept), values[kept]


def shortened(shards: Shards, state: np.ndarray, dropped: np.ndarray) -> Hashed:
    """The same, of what is left of them without the sentences `dropped`; those of which nothing is left are EMPTIED."""
    for shard in shards:
        tokens, sentences, documents, of_sentences = shard.read(
            "tokens", "sentences", "documents", "sentence_hashes"
        )
        part = state[shard.documents]  # a view
        kept = ~repeats.among(of_sentences, dropped) & np.repeat(part == TRAIN, documents)
        tokens, sentences, documents = select(tokens, sentences, documents, kept)
        part[(part == TRAIN) & (documents == 0)] = EMPTIED
        stops = np.cumsum(sentences, dtype=np.int64)[np.cumsum(documents[documents > 0]) - 1]
        yield shard.documents.start + np.flatnonzero(documents), hashes.documents(tokens, stops)


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
