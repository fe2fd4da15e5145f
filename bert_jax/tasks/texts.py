"""Rows of labelled texts, in NumPy: where the texts of an example are in its split's tokens, cut to fit into a row.

N examples, T texts of an example: one or two.
"""

import numpy as np

from bert_jax.config_checks import require
from bert_jax.data.dataset import Survey
from bert_jax.data.store import Split


def check_lengths(config, least: int = 5) -> None:
    """Raises BadInput for a phase whose rows have no place for two texts and their special tokens."""
    for name, phase in config.phases.items():
        hint = f"expected at least {least}"
        require(phase.length >= least, f"phases.{name}.length", config, hint)


def spans(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Returns int64[N, T], where each text begins in the tokens of a split, and the number of its tokens."""
    ends = split.sentence_ends
    sizes = np.diff(ends, prepend=0)
    shape = len(split.document_ends), -1
    return (ends - sizes).reshape(shape), sizes.reshape(shape)


def pairs(split: Split, length: int) -> np.ndarray:
    """Returns int64[N, 5] as assemble.gather reads it: start and size of the first text, of the second one or zeros,
    and the number of the example.

    Of texts that are too long for a row, tokens at the end of the longer one are cut, as in arXiv:1810.04805.
    """
    starts, sizes = spans(split)
    numbers, none = np.arange(len(starts)), np.zeros(len(starts), np.int64)
    if starts.shape[1] == 1:
        return np.stack([starts[:, 0], np.minimum(sizes[:, 0], length - 2), none, none, numbers], 1)
    (a, b), room = sizes.T, length - 3
    b = np.minimum(b, np.maximum(room - a, room // 2))
    return np.stack([starts[:, 0], np.minimum(a, room - b), starts[:, 1], b, numbers], axis=1)


def sizes(rows: np.ndarray) -> np.ndarray:
    """Returns the number of tokens of rows of `pairs`, special tokens included."""
    return rows[..., 1] + rows[..., 3] + 2 + (rows[..., 3] > 0)


def survey(rows: np.ndarray, length: int) -> Survey:
    """Returns the statistics of an epoch's rows."""
    share = float(sizes(rows).mean() / length)
    cut = float((sizes(rows) == length).mean())
    return Survey(share, f"{share:.0%} full, {cut:.1%} of them cut", [])
