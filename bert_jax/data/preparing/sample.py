"""The text that a vocabulary is trained on: whole blocks, evenly spread over all sources."""

from collections import Counter

from bert_jax.data import corpus


def sample(sources: list[corpus.Source], limit: int) -> list[str]:
    """Documents, a sentence a line, of at most `limit` bytes (but one block at least), in the order of the corpus.

    Reads all of the text once; memory holds the blocks that are kept.
    """
    kept, size, stride = [], 0, 1
    for number, (reading, block) in enumerate(blocks(sources)):
        if number % stride:
            continue
        kept.append((reading, block))
        size += length(block)
        while size > limit and len(kept) > 1:  # every second one has to go, and stay away
            stride *= 2
            kept = kept[::2]
            size = sum(length(block) for _, block in kept)
    parsed = (corpus.documents(block, reading, Counter()) for reading, block in kept)
    return ["\n".join(document) for documents in parsed for document in documents]


def blocks(sources: list[corpus.Source]):
    for source in sources:
        for block in source.blocks(Counter()):
            yield source.reading, block


def length(block: corpus.Block) -> int:
    return sum(map(len, block))
