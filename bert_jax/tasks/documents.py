"""The documents of a split as one stream: the tokens, with a separator after each document. Pure NumPy.

Rows that may hold several documents are ranges of this stream. It is not a file: separators[d] is the position of the
separator after document d, and any other position v is that of token v - d of the split, where d is the first document
whose separator is behind v. See assemble.gather_stream.
"""

import numpy as np

from bert_jax.data.store import Split
from bert_jax.tasks.pair_rows import spans


def separators(split: Split) -> np.ndarray:
    """Returns int64[D]: the position of the separator after each document."""
    ends = split.sentence_ends[split.document_ends - 1]
    return ends + np.arange(len(ends))


def stream_length(split: Split) -> int:
    """Returns the number of positions of the stream."""
    return len(split.tokens) + len(split.document_ends)


def sentences(split: Split, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns, for each sentence of consecutive documents, where it begins and ends in the stream, and the number of
    sentences up to the end of its document; int64[S] each.

    documents: int64[D], their numbers.
    """
    firsts, afters = spans(split.document_ends, documents)
    begins, ends = spans(split.sentence_ends, np.arange(firsts[0], afters[-1]))
    owner = np.repeat(documents, afters - firsts)
    return begins + owner, ends + owner, np.repeat(afters - firsts[0], afters - firsts)
