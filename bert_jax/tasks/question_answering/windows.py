"""Windows of texts that are too long for a row, in NumPy: [CLS] question [SEP] window [SEP].

N questions, each about a text of its own; W pieces of a text or a window; T tokens of a split; R windows. A split has,
besides the arrays of a store,

    offsets.npy   int32[T, 2]   where each token begins and ends in its text, in characters
    spans.npy     int32[N, 2]   the first and the last piece of the answer in the text; -1, -1 without an answer
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.data.dataset import A_SIZE, B_SIZE, B_START, EXAMPLE
from bert_jax.data.store import Split
from bert_jax.tasks.supervised.texts import cut_windows, locate_texts
from bert_jax.tokenizers.special_tokens import Frame


class Window(NamedTuple):
    """A window of a text, as the model sees it."""

    logits: np.ndarray  # float32[W, 2]: that a piece is the answer's first one, and its last one
    offsets: np.ndarray  # int[W, 2]: where each piece begins and ends in the text, in characters
    null: float  # score of no answer: the two logits of [CLS]


def encode(tokenizer, texts: Iterable[str]) -> dict[str, tuple]:
    """Returns {text: its ids, and their spans, see `locate`}. An empty text becomes one [UNK]."""
    unique = [*dict.fromkeys(texts)]
    pairs = zip(unique, tokenizer.encode_with_offsets(unique), strict=True)
    return {text: (ids or [tokenizer.unk], locate(text, offsets)) for text, (ids, offsets) in pairs}


def locate(text: str, offsets: list[tuple[int, int]]) -> np.ndarray:
    """Returns int32[W, 2], where pieces begin and end in a text; both increase.

    Combining marks that the tokenizer removes belong to the piece before them. An empty text has one piece.
    """
    spans = np.maximum.accumulate(np.array(offsets or [(0, 0)], np.int32))
    if text.isascii():
        return spans
    ends = spans[:, 1]
    for position, character in enumerate(text):
        if unicodedata.category(character) == "Mn":
            ends[ends == position] += 1
    return spans


def find_span(offsets: np.ndarray, start: int, text: str) -> tuple[int, int]:
    """Returns the first and the last piece of a part of a text; (-1, -1) if it has none. start: in characters."""
    first = np.searchsorted(offsets[:, 1], start, "right")
    last = np.searchsorted(offsets[:, 0], start + len(text)) - 1
    if first > last:
        return -1, -1
    return first, last


# Columns of a row behind those of dataset.py: the first and the last token of the answer.
FIRST, LAST = 5, 6


def rows(split: Split, length: int, frame: Frame, longest: int, stride: int) -> np.ndarray:
    """Returns int64[R, 1, 7]: windows as assemble.gather reads them, with the number of the question; and the first and
    the last token of the answer in the row, both 0, [CLS], if the window does not have all of it.

    Like those of the original run_squad.py.

    longest: pieces of a question at most.
    stride: pieces from a window to the next one; less if it would leave a gap.
    """
    starts, sizes = locate_texts(split)
    question_sizes = np.minimum(sizes[:, 0], longest)
    rooms = length - frame.size(2) - question_sizes
    steps = np.minimum(rooms, stride)
    numbers, offsets = cut_windows(sizes[:, 1], rooms, steps)
    # From here on, arrays have a value for each window instead of each question.
    starts = starts[numbers]
    text_sizes = sizes[numbers, 1]
    question_sizes = question_sizes[numbers]
    window_sizes = np.minimum(rooms[numbers], text_sizes - offsets)
    answers = split.read("spans")[numbers] - offsets[:, None]
    are_inside = (answers[:, :1] >= 0) & (answers[:, 1:] < window_sizes[:, None])
    begins = text_begin(question_sizes, frame)
    targets = np.where(are_inside, answers + begins[:, None], 0)
    columns = [
        starts[:, 0],
        question_sizes,
        starts[:, 1] + offsets,
        window_sizes,
        numbers,
        targets,
    ]
    return np.column_stack(columns).astype(np.int64)[:, None]


def text_begin(question_size, frame: Frame):
    """Returns where the window begins in its row. question_size: pieces of the question."""
    return len(frame.begin) + question_size + len(frame.between)


def group_by_question(
    split: Split, logits: np.ndarray, rows: np.ndarray, frame: Frame
) -> Iterator[list[Window]]:
    """Yields the windows of each question in `rows`, whose numbers increase.

    logits: float32[R, L, 2].
    rows: int64[R, 7], see `rows`.
    """
    offsets = split.read("offsets")
    order = np.argsort(rows[:, EXAMPLE], kind="stable")
    ends = np.flatnonzero(np.diff(rows[order, EXAMPLE])) + 1
    for numbers in np.split(order, ends):
        windows = []
        for row, row_logits in zip(rows[numbers], logits[numbers], strict=True):
            start, size = row[[B_START, B_SIZE]]
            begin = text_begin(row[A_SIZE], frame)
            window = Window(
                logits=row_logits[begin : begin + size],
                offsets=offsets[start : start + size],
                null=row_logits[0].sum(),
            )
            windows.append(window)
        yield windows
