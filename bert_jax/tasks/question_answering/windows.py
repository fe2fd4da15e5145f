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

from bert_jax.data.dataset import A_SIZE, B_SIZE, B_START
from bert_jax.data.store import Split, open_array
from bert_jax.tasks.labelled.texts import EXAMPLE


class Window(NamedTuple):
    """A window of a text, as the model sees it."""

    logits: np.ndarray  # float32[W, 2]: that a piece is the answer's first one, and its last one
    offsets: np.ndarray  # int[W, 2]: where each piece begins and ends in the text, in characters
    null: float  # score of no answer: the two logits of [CLS]


def encode(tokenizer, texts: Iterable[str]) -> dict[str, tuple[list[int], np.ndarray]]:
    """Returns {text: its ids, and their places, see `locate`}. An empty text becomes one [UNK]."""
    unique = [*dict.fromkeys(texts)]
    encoded = zip(unique, tokenizer.encode_with_offsets(unique), strict=True)
    return {t: (ids or [tokenizer.unk], locate(t, offsets)) for t, (ids, offsets) in encoded}


def locate(text: str, offsets: list[tuple[int, int]]) -> np.ndarray:
    """Returns int32[W, 2], where pieces begin and end in a text; both increase.

    Combining marks that the tokenizer removes belong to the piece before them. An empty text has one piece.
    """
    found = np.maximum.accumulate(np.array(offsets or [(0, 0)], np.int32))
    for position, character in enumerate("" if text.isascii() else text):
        if unicodedata.category(character) == "Mn":
            found[found[:, 1] == position, 1] += 1
    return found


def find_span(offsets: np.ndarray, start: int, text: str) -> tuple[int, int]:
    """Returns the first and the last piece of a part of a text; (-1, -1) if it has none. start: in characters."""
    first = np.searchsorted(offsets[:, 1], start, "right")
    last = np.searchsorted(offsets[:, 0], start + len(text)) - 1
    return (int(first), int(last)) if first <= last else (-1, -1)


# Columns of a row behind those of dataset.py: the first and the last token of the answer.
FIRST, LAST = 5, 6


def rows(split: Split, length: int, longest: int, stride: int) -> np.ndarray:
    """Returns int64[R, 1, 7]: windows as assemble.gather reads them, with the number of the question; and the first and
    the last token of the answer in the row, both 0, [CLS], if the window does not have all of it.

    longest: pieces of a question at most. stride: from a window to the next one, less if it would leave a gap. Like
    those of the original run_squad.py.
    """
    ends = split.sentence_ends.reshape(-1, 2)
    sizes = np.diff(ends.ravel(), prepend=0).reshape(ends.shape)
    starts = ends - sizes
    question = np.minimum(sizes[:, 0], longest)
    room = length - 3 - question
    step = np.minimum(room, stride)
    count = 1 + np.maximum(0, -(-(sizes[:, 1] - room) // step))
    number = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    before = (np.arange(len(number)) - first[number]) * step[number]
    size = np.minimum(room[number], sizes[number, 1] - before)
    answer = open_array(split.path / "spans.npy")[number] - before[:, None]
    inside = (answer[:, :1] >= 0) & (answer[:, 1:] < size[:, None])
    targets = np.where(inside, answer + question[number, None] + 2, 0)
    columns = starts[number, 0], question[number], starts[number, 1] + before, size, number
    return np.column_stack([*columns, targets]).astype(np.int64)[:, None]


def by_question(split: Split, logits: np.ndarray, rows: np.ndarray) -> Iterator[list[Window]]:
    """Yields the windows of each question in `rows`, whose numbers increase.

    logits: float32[R, L, 2]. rows: int64[R, 7], see `rows`.
    """
    offsets = open_array(split.path / "offsets.npy")

    def window(row: int) -> Window:
        begin = rows[row, A_SIZE] + 2
        start, size = rows[row, [B_START, B_SIZE]]
        inside = logits[row, begin : begin + size]
        return Window(inside, offsets[start : start + size], logits[row, 0].sum())

    order = np.argsort(rows[:, EXAMPLE], kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(rows[order, EXAMPLE])) + 1):
        yield [*map(window, part)]
