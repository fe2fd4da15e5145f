"""ModernBERT's task: documents packed into rows without padding (arXiv:2412.13663), masked; there are no pairs.

Each document is a sequence [CLS] tokens [SEP] of its own: its tokens attend only to it, and its positions start at 0.
Documents follow in the order of the split. A document is cut at the end of a row, and the rest begins the next row as
a sequence. Every token of a split is in one row of an epoch. But all epochs have as many rows as the first, so a later
one may have the tokens of one row twice, or leave them out. At most four places of a row are padding, where [SEP] and
[CLS] of two documents meet its end, but for the first and the last row of an epoch.

Rows are no file: the stream of documents.py with two separators is cut into equal ranges, at another offset in each
epoch, and a range loses the separators at its ends.
"""

from functools import partial

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
        begin, stop = documents.stream_range(part, width)
        key = draw_key(config.seed, "cuts", number_of(split), phase.text, epoch)
        first = begin - int(prng.below(key, room)[0])
        number = -((first - stop) // room)
        ends = documents.separators(part, width)
        return documents.Rows(number, partial(cut, ends, (begin, stop), width, room, first))

    return masked_rows.of_ranges(config, store, word_starts, rows, packed=True)


def cut(ends: np.ndarray, limits: tuple, width: int, room: int, first: int, numbers) -> np.ndarray:
    """Returns the rows with these numbers, int64[..., 2]: start and size in the stream.

    ends: int64[D], where the documents end there.
    limits: where the first row begins and the last one ends.
    width: separators between two documents.
    room: places of a range.
    first: where the first one begins.
    """
    begins = first + room * np.asarray(numbers)
    cuts = np.stack([begins, begins + room], axis=-1)
    cuts = np.clip(cuts, *limits)
    document = np.searchsorted(ends, cuts, "right") - 1
    # Places since the last end of a document; negative in the first one.
    passed = cuts - ends[document]
    is_separator = (passed >= 0) & (passed <= width)
    passed = np.where(is_separator, passed, [width, 0])
    start, end = np.moveaxis(cuts + [width, 0] - passed, -1, 0)
    return np.stack([start, end - start], axis=-1)
