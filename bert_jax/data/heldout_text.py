"""The held-out documents of a store, as the text that they were before any tokenizer saw them."""

import functools
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data import corpus
from bert_jax.data.preparation.encode import text_hash
from bert_jax.data.preparation.pool import workers
from bert_jax.data.store import HELDOUT_HASHES, Store, open_array
from bert_jax.errors import BadInput

Task = tuple[corpus.Reading, corpus.Block]


def documents(config, store: Store) -> Iterator[list[str]]:
    """The sentences of each held-out document, case and accents kept; read for as long as they are asked for.

    The corpus is read again, its sources in turns, and a document is known by the hash of its text. Equal ones come
    once. Raises BadInput if there are none.
    """
    sources = corpus.open_sources(config)
    known = hashes(store.path / HELDOUT_HASHES)
    missing, chosen = set(known), functools.partial(parse, store.path / HELDOUT_HASHES)
    with tempfile.TemporaryDirectory() as directory, workers(config.corpus.workers) as run:
        sources = [corpus.materialize(source, Path(directory), run) for source in sources]
        for digest, sentences in itertools.chain.from_iterable(run(chosen, blocks(sources))):
            if digest in missing:
                missing.remove(digest)
                yield sentences
            if not missing:
                return
    if missing == known:
        raise BadInput(
            f"config.corpus.source={config.corpus.source!r}: no held-out document of {store.path} is there;"
            " the text is not the one that it was made from"
        )


def blocks(sources: list[corpus.Source]) -> Iterator[Task]:
    """A block of each source in turn."""
    parts = (
        zip(itertools.repeat(source.reading), source.blocks(Counter()), strict=False)
        for source in sources
    )
    for group in itertools.zip_longest(*parts):
        yield from filter(None, group)


@functools.lru_cache(maxsize=1)
def hashes(path: Path) -> frozenset[bytes]:
    """Of the held-out documents; read once a process."""
    return frozenset(map(bytes, open_array(path)))


def parse(path: Path, task: Task) -> list[tuple[bytes, list[str]]]:
    """Runs in a worker: (hash, sentences) of the documents of a block that are held out."""
    reading, block = task
    found = corpus.documents(block, reading, Counter())
    return [(digest, lines) for lines in found if (digest := text_hash(lines)) in hashes(path)]
