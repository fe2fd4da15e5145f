"""The held-out documents of a store, as the text that they were before any tokenizer saw them."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.preparation.encode import text_hash
from bert_jax.data.preparation.pool import workers
from bert_jax.data.store import HELDOUT_HASHES, Store, open_array
from bert_jax.errors import BadInput


def documents(config, store: Store) -> Iterator[list[str]]:
    """The sentences of each held-out document, case and accents kept; read for as long as they are asked for.

    The corpus is read again, its sources in turns, and a document is known by the hash of its text. Equal ones come
    once. Raises BadInput if there are none.
    """
    sources, found = corpus.open_sources(config), set()
    known = known_hashes(store.path, store.fingerprint)
    with (
        tempfile.TemporaryDirectory() as directory,
        workers(config.corpus.workers) as run,
    ):
        sources = [corpus.materialize(source, Path(directory), run) for source in sources]
        for pairs in run(partial(search, store.path, store.fingerprint), blocks(sources)):
            for digest, sentences in pairs:
                if digest not in found:
                    found.add(digest)
                    yield sentences
            if len(found) == len(known):
                return
    if not found:
        raise BadInput(
            f"config.corpus.source={config.corpus.source!r}: no held-out document of {store.path} is there;"
            " the text is not the one that it was made from"
        )


def blocks(sources: list[corpus.Source]) -> Iterator[tuple[corpus.Reading, corpus.Block]]:
    """A block of each source in turn."""
    parts = (
        zip(itertools.repeat(source.reading), source.blocks(Counter()), strict=False)
        for source in sources
    )
    for group in itertools.zip_longest(*parts):
        yield from filter(None, group)


def search(
    store: Path, fingerprint: str, task: tuple[corpus.Reading, corpus.Block]
) -> list[tuple[bytes, list[str]]]:
    """Runs in a worker: (hash, sentences) of the held-out documents of a block."""
    known, (reading, block) = known_hashes(store, fingerprint), task
    parsed = corpus.documents(block, reading, Counter())
    return [(digest, lines) for lines in parsed if (digest := text_hash(lines)) in known]


@lru_cache(maxsize=1)
def known_hashes(store: Path, fingerprint: str) -> frozenset[bytes]:
    """Of the held-out documents; the fingerprint tells apart what lay at the same place."""
    return frozenset(map(bytes, np.asarray(open_array(store / HELDOUT_HASHES))))
