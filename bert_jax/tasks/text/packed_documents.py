"""ModernBERT's task: documents packed into rows without padding (arXiv:2412.13663), masked; there are no pairs.

Each document is a sequence [CLS] tokens [SEP] of its own: its tokens attend only to it, and its positions start at 0.
Documents follow in the order of the split. A document is cut at the end of a row, and the rest begins the next row as
a sequence. Every token of a split is in one row of an epoch. But all epochs have as many rows as the first, so a later
one may have the tokens of one row twice, or leave them out. At most four places of a row are padding, where [SEP] and
[CLS] of two documents meet its end, but for the first and the last row of an epoch.

Rows are no file: the stream of documents.py with two separators is cut into equal ranges, at another offset in each
epoch, and a range loses the separators at its ends.
"""

import numpy as np

from bert_jax import prng
from bert_jax.data.dataset import Dataset, draw_key
from bert_jax.data.store import Store, number_of
from bert_jax.tasks.text import documents, masked_rows
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = masked_rows.DEFAULTS
NEEDS = masked_rows.NEEDS
PHASE_DEFAULTS = masked_rows.PHASE_DEFAULTS
check = masked_rows.check


def make(config, store: Store | None = None, word_starts: np.ndarray | None = None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py. word_starts: see masked_rows.mask."""

    width = frame_of(config).size()  # separators between two documents

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        room = phase.length - width
        part = store.splits[split]
        ends = documents.separators(part, width)
        begin, stop = documents.stream_range(part, width)
        key = draw_key(config.seed, "cuts", number_of(split), phase.text, epoch)
        first = begin - int(prng.below(key, room)[0])
        number = -(-(stop - first) // room)

        def read(numbers: np.ndarray) -> np.ndarray:
            starts = first + room * numbers
            stops = np.minimum(starts + room, stop)
            return trim(np.maximum(starts, begin), stops, ends, width)

        return documents.Rows(number, read)

    return masked_rows.of_ranges(config, store, word_starts, rows, packed=True)


def trim(starts: np.ndarray, stops: np.ndarray, ends: np.ndarray, width: int) -> np.ndarray:
    """Returns ranges of the stream without the separators at their beginning and at their end: int64[..., 2], start and
    size of each.

    For example, documents of 3 and 4 tokens, a and b, with two separators after each, so `ends` are 3 and 9:

        position           0 1 2 3 4 5 6 7 8 9 10
        stream             a a a | | b b b b |  |
        from 0 to 4        a a a                     returns 0, 3
        from 4 to 8                b b b             returns 5, 3

    starts, stops: int64[...], of ranges that have a token each.
    ends: int64[D], the first separator after each document.
    width: separators between two documents.
    """
    # The first document that ends after the start, and the first one whose separators reach the stop.
    places = np.stack([starts + 1, stops - width], axis=-1)
    first, last = np.moveaxis(np.searchsorted(ends, places), -1, 0)
    # A start on separators moves behind them, a stop on separators or behind them moves in front of them.
    begins = np.where(first > 0, ends[first - 1] + width, 0)
    starts = np.maximum(starts, begins)
    stops = np.minimum(stops, ends[last])
    return np.stack([starts, stops - starts], axis=-1)
