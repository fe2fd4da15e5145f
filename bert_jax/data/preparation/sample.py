"""The text that a vocabulary is trained on: whole blocks, evenly spread over all sources."""

from collections import Counter
from collections.abc import Iterable

from bert_jax.data import corpus
from bert_jax.data.preparation import file_ranges


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


def sample(
    texts: list[file_ranges.Texts], limit: int
) -> list[tuple[corpus.Reading, file_ranges.Block]]:
    """Blocks of at most `limit` bytes together, but one at least, in the order of the corpus."""
    lengths = (file_ranges.length(block) for of_source in texts for block in of_source.blocks())
    chosen = set(choose(lengths, limit))
    every = ((one.source.reading, block) for one in texts for block in one.blocks())
    return [part for number, part in enumerate(every) if number in chosen]


def take(part: tuple[corpus.Reading, file_ranges.Block]) -> list[str]:
    """Runs in a worker: the documents of a block, a sentence a line."""
    reading, block = part
    documents = corpus.documents(file_ranges.read(block), reading, Counter())
    return ["\n".join(document) for document in documents]
