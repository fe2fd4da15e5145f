"""What a store gives a phase, measured on a spread sample before step 0: fill, pairs, predictions, ids, overlap.

NumPy, pure; the cost does not grow with the store.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.data.batch_spec import Spec
from bert_jax.data.packing import pack
from bert_jax.data.sentence_pairs import sample, special_pieces
from bert_jax.data.store import Split, Store

PARTS = 64  # a sample is this many stretches, spread evenly
SENTENCES = 1 << 13  # of a stretch whose rows are made, about
TOKENS = 1 << 24  # in all
DOCUMENTS = 1 << 16  # training documents that are compared with HELDOUT held-out ones, at most
HELDOUT = 1000


class RowSurvey(NamedTuple):
    """Numbers of a sample of a phase's rows."""

    rows: int
    pairs: int  # or single segments; more than rows where these are packed
    fill: float  # real tokens, with [CLS] and [SEP], by row length
    pair_ratio: float  # share of the pairs with label 1; 0 without pairs
    wanted: float  # masked positions a row that the rate asks for, on average
    given: float  # of those, the ones that fit into `predictions`


class StoreSurvey(NamedTuple):
    """Numbers of a sample of a store's documents."""

    largest_id: int
    word_starts: float  # share of the tokens that begin a word
    single: float  # share of the documents that have one sentence
    heldout: int  # held-out documents looked for
    train: int  # training documents among which they were looked for
    overlap: int  # of the held-out ones, found


def survey_rows(store: Store, spec: Spec) -> RowSurvey:
    pairs = sample(store.splits["train"], spec.rules, PARTS, SENTENCES)
    real = pairs.a_length + pairs.b_length + special_pieces(spec.pairs)
    packed = pack(real, spec.length, spec.sequences)
    # As masking.py counts them, from the original: at least one, rounded half to even.
    wanted = np.maximum(1, np.rint(spec.mask_rate * real))
    wanted = np.where(packed < 0, 0, wanted[packed]).sum(axis=1)
    return RowSurvey(
        rows=len(packed),
        pairs=len(real),
        fill=float(real.sum() / len(packed) / spec.length),
        pair_ratio=float((pairs.label != 0).mean()),
        wanted=float(wanted.mean()),
        given=float(np.minimum(wanted, spec.predictions).mean()),
    )


def survey_store(store: Store, word_starts: np.ndarray) -> StoreSurvey:
    """word_starts: bool[V]."""
    train = store.splits["train"]
    counts = count_ids(train)
    known = np.flatnonzero(word_starts[: len(counts)])
    parts = spread(len(train.document_ends), DOCUMENTS)
    heldout, overlap = find_overlap(train, store.splits["heldout"], parts)
    sentences = np.concatenate([sizes(train, part) for part in parts])
    return StoreSurvey(
        largest_id=len(counts) - 1,
        word_starts=float(counts[known].sum() / counts.sum()),
        single=float(np.mean(sentences == 1)),
        heldout=heldout,
        train=len(sentences),
        overlap=overlap,
    )


def count_ids(split: Split) -> np.ndarray:
    """int64[largest id + 1]: how often each id stands in a sample of the tokens."""
    parts = [np.bincount(split.tokens[part]) for part in spread(len(split.tokens), TOKENS)]
    counts = np.zeros(max(map(len, parts)), np.int64)
    for part in parts:
        counts[: len(part)] += part
    return counts


def spread(length: int, most: int) -> list[slice]:
    """All of range(length) or, if that is more than `most`, as many numbers in PARTS even stretches."""
    if length <= most:
        return [slice(0, length)]
    starts = np.linspace(0, length - most // PARTS, PARTS).astype(np.int64)
    return [slice(int(start), int(start) + most // PARTS) for start in starts]


def find_overlap(train: Split, heldout: Split, parts: list[slice]) -> tuple[int, int]:
    """(held-out documents looked for, how many of them are among these training ones, token by token)."""
    step = max(1, -(-len(heldout.document_ends) // HELDOUT))
    numbers = range(0, len(heldout.document_ends), step)
    places = np.concatenate([bounds(heldout, slice(number, number + 1)) for number in numbers])
    looked_for = list(texts(heldout, places))
    there = (
        text for part in parts for text in texts(train, of_lengths(bounds(train, part), places))
    )
    return len(looked_for), len(set(looked_for).intersection(there))


def bounds(split: Split, part: slice) -> np.ndarray:
    """int64[D, 2]: where some documents begin and end in tokens."""
    first = split.document_ends[part.start - 1] if part.start else 0
    ends = split.sentence_ends[split.document_ends[part] - 1]
    begin = split.sentence_ends[first - 1] if first else 0
    return np.stack([np.concatenate([[begin], ends[:-1]]), ends], axis=1)


def of_lengths(places: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The bounds that are as long as one of the others: no text of another length has to be read."""
    return places[np.isin(np.diff(places), np.diff(others))[:, 0]]


def texts(split: Split, places: np.ndarray) -> Iterator[bytes]:
    """The ids of documents of these bounds."""
    return (split.tokens[begin:end].tobytes() for begin, end in places)


def sizes(split: Split, part: slice) -> np.ndarray:
    """int64[D]: sentences of some documents."""
    first = split.document_ends[part.start - 1] if part.start else 0
    return np.diff(split.document_ends[part], prepend=first)
