"""What a store gives a phase, measured on a spread sample before step 0: fill, pairs, predictions, ids, overlap.

NumPy, pure; the cost does not grow with the store.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data.batch_spec import Spec
from bert_jax.data.packing import pack
from bert_jax.data.sentence_pairs import sample, special_pieces
from bert_jax.data.store import Split, Store

PARTS = 64  # a sample is this many stretches, spread evenly
SENTENCES = 1 << 13  # of a stretch whose rows are made, about
TOKENS = 1 << 24  # in all
DOCUMENTS = 1 << 20  # training documents that are compared with HELDOUT held-out ones, at most
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
    known = np.pad(word_starts, (0, max(0, len(counts) - len(word_starts))))[: len(counts)]
    parts = spread(len(train.document_ends), DOCUMENTS)
    outlines = [outline(train, part) for part in parts]
    heldout, overlap = find_overlap(train, store.splits["heldout"], outlines)
    shapes = np.concatenate([shape for _, shape in outlines])
    return StoreSurvey(
        largest_id=len(counts) - 1,
        word_starts=float(counts[known].sum() / counts.sum()),
        single=float(np.mean(shapes[:, 1] == 1)),
        heldout=heldout,
        train=len(shapes),
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


def find_overlap(train: Split, heldout: Split, outlines: list) -> tuple[int, int]:
    """(held-out documents looked for, how many of them are among these training ones, token by token).

    A sample at the door; `sound.check_overlap` looks at all.
    """
    step = max(1, -(-len(heldout.document_ends) // HELDOUT))
    looked_for = [
        slice(number, number + 1) for number in range(0, len(heldout.document_ends), step)
    ]
    texts, shapes = set(), []
    for part in looked_for:
        bounds, shape = outline(heldout, part)
        texts.add(heldout.tokens[slice(*bounds[0])].tobytes())
        shapes.append(shape)
    shapes, found = np.unique(np.concatenate(shapes), axis=0), set()
    for bounds, shape in outlines:
        # Only what has the outline of a held-out document is read.
        for begin, end in bounds[same_rows(shape, shapes)]:
            text = train.tokens[begin:end].tobytes()
            if text in texts:
                found.add(text)
    return len(looked_for), len(found)


def outline(split: Split, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """(int64[D, 2] token ranges, int64[D, 3] tokens, sentences, tokens of the first sentence) of some documents."""
    last = np.asarray(split.document_ends[part])
    before = split.document_ends[part.start - 1] if part.start else 0
    first = np.concatenate([[before], last[:-1]])
    begin = np.where(first > 0, split.sentence_ends[np.maximum(first - 1, 0)], 0)
    end = np.asarray(split.sentence_ends[last - 1])
    shape = np.stack([end - begin, last - first, split.sentence_ends[first] - begin], axis=1)
    return np.stack([begin, end], axis=1), shape


def same_rows(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """bool[len(rows)]: whether a row of int64[.., 3] is one of `wanted`."""

    def packed(array):
        return np.ascontiguousarray(array, np.int64).view("V24").reshape(-1)

    return np.isin(packed(rows), packed(wanted))
