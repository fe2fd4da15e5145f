"""The text that a vocabulary is trained on: whole blocks, evenly spread over all sources."""

from collections import Counter
from collections.abc import Iterable

from bert_jax.data import corpus
from bert_jax.data.preparing import cut


def choose(lengths: Iterable[int], limit: int) -> list[int]:
    """Which of blocks of these lengths: of at most `limit` bytes together, but one at least."""
    kept, size, stride = [], 0, 1
    for number, length in enumerate(lengths):
        if number % stride:
            continue
        kept.append((number, length))
        size += length
        while size > limit and len(kept) > 1:  # every second one has to go, and stay away
            stride *= 2
            kept = kept[::2]
            size = sum(length for _, length in kept)
    return [number for number, _ in kept]


def sample(texts: list[cut.Texts], limit: int) -> list[str]:
    """Documents, a sentence a line, of at most `limit` bytes (but one block at least), in the order of the corpus.

    Reads nothing else; memory holds the blocks that are kept.
    """
    lengths = (cut.length(block) for of_source in texts for block in of_source.blocks())
    chosen = set(choose(lengths, limit))
    every = ((one.source.reading, block) for one in texts for block in one.blocks())
    kept = (pair for number, pair in enumerate(every) if number in chosen)
    parsed = (corpus.documents(cut.read(block), reading, Counter()) for reading, block in kept)
    return ["\n".join(document) for documents in parsed for document in documents]
