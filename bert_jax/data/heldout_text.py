"""The held-out documents of a store, as the text that they were before any tokenizer saw them."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.preparation import hashes
from bert_jax.data.preparation.pool import workers
from bert_jax.data.store import Store, open_store
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.encode_cache import Direct, Units


class Place(NamedTuple):
    """Where a store lies, and the fingerprint that tells apart what lay at the same place."""

    path: Path
    fingerprint: str


def documents(config, store: Store) -> Iterator[list[str]]:
    """The sentences of each held-out document, case and accents kept; read for as long as they are asked for.

    The corpus is read again, its sources in turns, and a document is known by the hash of its ids. So documents that
    config.filter.repeats has shortened are not found. Equal ones come once. BadInput if there are none.
    """
    sources, place, found = corpus.open_sources(config), Place(store.path, store.fingerprint), set()
    with (
        tempfile.TemporaryDirectory() as directory,
        workers(config.corpus.workers) as run,
    ):
        sources = [corpus.materialize(source, Path(directory), run) for source in sources]
        for pairs in run(partial(search, place), blocks(sources)):
            for digest, sentences in pairs:
                if digest not in found:
                    found.add(digest)
                    yield sentences
            if len(found) == len(known_hashes(place)):
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
    place: Place, task: tuple[corpus.Reading, corpus.Block]
) -> list[tuple[bytes, list[str]]]:
    """Runs in a worker: (hash, sentences) of the held-out documents of a block."""
    reading, block = task
    parsed = corpus.documents(block, reading, Counter())
    tokens, ends = table(place).encode([sentence for document in parsed for sentence in document])
    last = np.cumsum([len(document) for document in parsed], dtype=np.int64)
    stops = np.concatenate([[0], ends])[last]
    pairs = zip(map(bytes, hashes.documents(tokens, stops)), parsed, strict=True)
    known = known_hashes(place)
    return [(digest, sentences) for digest, sentences in pairs if digest in known]


@lru_cache(maxsize=1)
def table(place: Place) -> Units | Direct:
    return tokenizers.load(place.path / "tokenizer").table()


@lru_cache(maxsize=1)
def known_hashes(place: Place) -> frozenset[bytes]:
    """Of the held-out documents."""
    split = open_store(place.path).splits["heldout"]
    ends = split.sentence_ends[split.document_ends - 1]
    return frozenset(map(bytes, hashes.documents(split.tokens, ends)))
