"""RoBERTa's task: rows of whole sentences that fill the length, [CLS] sentences [SEP], masked; there are no pairs.

Sentences are taken in order while they fit. Rows cross documents, with a separator between two (FULL-SENTENCES), or
end with their document (DOC-SENTENCES). A sentence that is longer than a row continues in the next ones, so every token
of a split is in exactly one row of an epoch. A row ends with its block of documents (documents.BLOCK sentences).

An index is int64[R, 2]: where each row starts in the stream of documents.py, and its size there, without [CLS] and the
last [SEP]. A row never starts or ends with a separator.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bert_jax import prng
from bert_jax.data.dataset import Dataset, draw_key
from bert_jax.data.row_index import Indexes, digest, index_directory
from bert_jax.data.store import Split, Store, number_of
from bert_jax.tasks.text import documents, masked_rows
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = {
    **masked_rows.DEFAULTS,
    # whether a row continues in the next document, after a [SEP]; otherwise it ends with its document
    "cross_documents": True,
}
NEEDS = masked_rows.NEEDS
PHASE_DEFAULTS = masked_rows.PHASE_DEFAULTS
check = masked_rows.check

VERSION = 1  # of the algorithm that makes rows; part of an index's name
# Of rows that cross documents, one in this many takes a random number of the sentences that fit. Otherwise all epochs
# would have the same rows: two epochs that start apart meet after about a hundred rows, and then stay together.
RESTART = 128


def make(config, store: Store | None = None, word_starts: np.ndarray | None = None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py. word_starts: see masked_rows.mask."""

    special = frame_of(config).size()

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        part = store.splits[split]
        rules = phase.length - special, config.task.cross_documents
        key = partial(draw_key, config.seed, "cuts", number_of(split), phase.text)
        settings = digest(store, VERSION, rules, int(key(0)[0]))
        name = f"{split}-{phase.length}-{settings}"
        parts = partial(build, part, rules, key)
        index = Indexes(index_directory(store.path), name, np.int64, 2, parts)
        _, end = documents.stream_range(part)
        sizes = phase.length, special, end + 1
        return masked_rows.open_rows([index], epoch, *sizes, lambda numbers, rows: rows[numbers])

    return masked_rows.of_ranges(config, store, word_starts, rows)


def build(split: Split, rules: tuple, key: Callable, epoch: int) -> Iterator[np.ndarray]:
    """Yields the index of an epoch in order, in parts int64[r, 2].

    rules: room and cross_documents, see `cut`.
    key: epoch -> uint32[1], of the draws.
    """
    for numbers in documents.ranges(split):
        block_key = prng.fold(key(epoch), numbers[:1].astype(np.uint32))
        yield cut(split, *rules, block_key, numbers)


def cut(split: Split, room: int, cross_documents: bool, key, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows of some consecutive documents, int64[R, 2].

    room: tokens and separators of a row, at most.
    key: uint32[1].
    numbers: those of the documents.
    """
    sentences = documents.sentences(split, numbers)
    count = len(sentences.ends)
    document_ends = sentences.lasts[sentences.owner] + 1
    if cross_documents:
        document_ends = np.full(count, count)
    # Lists are faster than arrays in the loop.
    document_ends = document_ends.tolist()
    keys = prng.fold(key, np.arange(count, dtype=np.uint32))
    draws = prng.uniform(keys).tolist()
    # Places in the stream, which has a separator after each document. After the last sentence, none begins.
    separators = numbers[sentences.owner]
    begins = (sentences.begins + separators).tolist()
    begins.append(None)
    ends = (sentences.ends + separators).tolist()
    rows = []
    sentence = 0
    start = begins[0]
    while sentence < count:
        limit = start + room
        last = min(document_ends[sentence], sentence + room)
        after = bisect_right(ends, limit, sentence, last)  # the first sentence that does not fit
        if after == sentence:  # it is longer than the row, and continues in the next one
            rows.append((start, room))
            start = limit
            continue
        if cross_documents and len(rows) % RESTART == 0:
            after -= int(draws[sentence] * (after - sentence))
        rows.append((start, ends[after - 1] - start))
        sentence = after
        start = begins[after]
    return np.array(rows)
