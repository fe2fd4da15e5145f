"""Windows of texts that are too long for a row, in NumPy: [CLS] question [SEP] window [SEP].

N questions, each about a text of its own; R windows. A split has, besides the arrays of a store,

    offsets.npy   int32[T, 2]   where each token begins and ends in its text, in characters
    spans.npy     int32[N, 2]   the first and the last piece of the answer in the text; -1, -1 without an answer
"""

import numpy as np

from bert_jax.data.store import Split, open_array


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
