"""Reads the original text of a store's held-out documents, before tokenization."""

import functools
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.preparation import corpus, encode, pool
from bert_jax.data.store import HELDOUT_HASHES, Store, open_array
from bert_jax.errors import BadInput


def documents(config, store: Store) -> Iterator[list[str]]:
    """Yields the sentences of each held-out document, with case and accents; stops reading when the caller does.

    Reads the corpus again, taking its sources in turn, and identifies documents by the hash of their text. Equal
    documents are yielded once. Raises BadInput if the corpus has none of them.
    """
    sources = corpus.open_sources(config)
    heldout = set(map(tuple, open_array(store.path / HELDOUT_HASHES).tolist()))
    missing = set(heldout)
    parse_block = functools.partial(parse, max(heldout))
    with tempfile.TemporaryDirectory() as directory, pool.workers(config.corpus.workers) as run:
        sources = [corpus.materialize(source, Path(directory), run) for source in sources]
        sources = corpus.set_heldout_starts(config, sources, run)
        for pairs in run(parse_block, blocks(sources)):
            for digest, sentences in pairs:
                if digest in missing:
                    missing.remove(digest)
                    yield sentences
                if not missing:
                    return
    if missing == heldout:
        raise BadInput(
            f"config.corpus.source={config.corpus.source!r}: contains no held-out document of"
            f" {store.path}; use the text that it was built from"
        )


def blocks(sources: list[corpus.Source]) -> Iterator[corpus.TextBlock]:
    """Yields blocks, one from each source in turn, but those of which all text is trained on."""
    iterators = (source.blocks(Counter()) for source in sources)
    for group in itertools.zip_longest(*iterators):
        for block in filter(None, group):
            if block.trained != math.inf:
                yield block


def parse(largest: tuple[int, int], block: corpus.TextBlock) -> list[tuple]:
    """Runs in a worker: returns (hash, sentences) of each document in a block that may be held out: by its position, or
    by a hash, two integers, up to `largest`."""
    documents = list(filter(None, corpus.documents(block, Counter())))
    pairs = zip(map(tuple, encode.text_hashes(documents).tolist()), documents, strict=True)
    if block.trained is None:
        return [pair for pair in pairs if pair[0] <= largest]
    return list(itertools.compress(pairs, corpus.heldout_by_position(block, documents)))
