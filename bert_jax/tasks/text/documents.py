"""The documents of a split: in ranges, sentence by sentence, and as one stream of tokens. Pure NumPy.

The stream has a separator after each document, or `width` of them. Rows that may hold several documents are ranges of
it. It is not a file: separators[d] is the position of the first separator after document d, and a position v that has
none is that of token v - width * d of the split, where d is the first document whose separators are behind v. For
example, documents of 3 and 2 tokens, with one separator each, are the stream t t t | t t |; separators are 3 and 6, and
position 4 is token 3. See assemble.gather_stream.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_jax.data.dataset import A_SIZE, LABEL
from bert_jax.data.store import Split

BLOCK = 1 << 19  # sentences processed at a time; a document is never split, however long it is


class Sentences(NamedTuple):
    """The sentences of some documents. Sentences and documents are numbered from 0 here."""

    begins: np.ndarray  # int64[S] where each sentence begins in the split's tokens
    ends: np.ndarray  # int64[S] where each sentence ends
    owner: np.ndarray  # int64[S] the document of each sentence
    firsts: np.ndarray  # int64[D] the first sentence of each document
    lasts: np.ndarray  # int64[D] the last sentence of each document


def spans(ends: np.ndarray, numbers) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the items of these numbers begin and end. ends: where each source, document or sentence ends."""
    ends = np.asarray(ends)
    begins = np.where(numbers > 0, ends[numbers - 1], 0)
    return begins, ends[numbers]


def sentences(split: Split, documents: np.ndarray) -> Sentences:
    """Returns the sentences of these documents, int64[D], ascending."""
    begin, end = spans(split.document_ends, documents)
    counts = end - begin
    after = np.cumsum(counts)
    firsts = after - counts
    owner = np.repeat(np.arange(len(documents)), counts)
    numbers = np.arange(len(owner)) + (begin - firsts)[owner]  # of the sentences in the split
    begins, ends = spans(split.sentence_ends, numbers)
    return Sentences(begins, ends, owner, firsts, after - 1)


def ranges(split: Split) -> Iterator[np.ndarray]:
    """Yields the numbers of consecutive documents, int64[D], with at most BLOCK sentences at a time; at least one."""
    first, stop = split.documents.start, split.documents.stop
    while first < stop:
        begin, _ = spans(split.document_ends, first)
        after = int(np.searchsorted(split.document_ends, begin + BLOCK, "right"))
        after = min(stop, max(first + 1, after))
        yield np.arange(first, after)
        first = after


def sequence_sizes(rows: np.ndarray, special: int) -> np.ndarray:
    """Returns the number of tokens of each sequence of rows with its special tokens, int64[...]; 0 for an absent one.

    rows: int64[..., 2 or more], begins with the start and the length of A, and those of B if there is one, as
    assemble.gather reads them. special: tokens of a sequence that are not of A or B.
    """
    sizes = rows[..., A_SIZE:LABEL:2]  # of A and, if there is one, of B
    return np.where(rows[..., A_SIZE] > 0, sizes.sum(axis=-1) + special, 0)


def separators(split: Split, width: int = 1) -> np.ndarray:
    """Returns int64[D]: the position in the stream of the first of `width` separators after each document."""
    ends = split.sentence_ends[split.document_ends - 1]
    return ends + width * np.arange(len(ends))


def stream_range(split: Split, width: int = 1) -> tuple[int, int]:
    """Returns where the documents of a split begin in the stream, and the first separator after the last one."""
    ends = separators(split, width)
    first, stop = split.documents.start, split.documents.stop
    return int(ends[first - 1]) + width if first else 0, int(ends[stop - 1])


@dataclass
class Rows:
    """The rows of an epoch, computed when they are read: `rows[numbers]`, int64[...] -> int64[..., C] or int64[...]."""

    number: int
    read: Callable  # (numbers) -> the rows with these numbers

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        return self.read(numbers)
