"""The vocabulary of a config: read from a file, trained on a sample of the corpus, or assumed if there is no store."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from bert_jax.data import corpus, download
from bert_jax.storage import remote
from bert_jax.storage.atomic import rename
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import SPECIAL, Vocabulary
from bert_jax.tokenizers.tokenizer import Tokenizer


def tokenizer_from_file(config) -> Tokenizer:
    """Loads the tokenizer file at config.tokenizer.path, a path or a remote address. Raises BadInput that names it."""
    path = download.local_file(config.tokenizer.path)
    with remote.naming(path, config.tokenizer.path):
        return tokenizers.from_file(path, config.tokenizer.lowercase)


def expected_vocabulary(config, log: Callable[[str], None]) -> Vocabulary:
    """Returns the vocabulary of the store or, if there is none, of the file at config.tokenizer.path.

    If there is neither, assumes one of config.tokenizer.size pieces.
    """
    if download.exists(config.store):
        manifest = download.read_manifest(config.store)
        return Vocabulary(manifest["vocabulary"], **manifest["special"])
    if config.tokenizer.path and remote.exists(config.tokenizer.path):
        tokenizer = tokenizer_from_file(config)
        return Vocabulary(tokenizer.size, **tokenizer.special)
    if config.tokenizer.path:
        size = f"config.tokenizer.size={config.tokenizer.size}"
        log(f"config.tokenizer.path={config.tokenizer.path}: not found, assuming {size} instead")
    return Vocabulary(config.tokenizer.size, **{name: id for id, name in enumerate(SPECIAL)})


def load_or_train(
    config, sources: list[corpus.Source], path: Path, run: Callable, log: Callable
) -> Tokenizer:
    """Loads the tokenizer from the directory `path`; if it is missing, first reads or trains it and saves it there.

    run: maps a function over tasks, in order.
    """
    if not path.exists():
        temporary = path.with_suffix(".writing")
        tokenizer = tokenizer_from_file(config) if config.tokenizer.path else None
        (tokenizer or train(config.tokenizer, sources, run, log)).save(temporary)
        rename(temporary, path)
    return tokenizers.load(path)


def train(settings, sources: list[corpus.Source], run: Callable, log: Callable) -> Tokenizer:
    """Trains a tokenizer on a sample of the sources. settings: config.tokenizer."""
    log("prepare: reading a sample of the text to train the vocabulary")
    blocks = ((source.reading, block) for source in sources for block in source.blocks(Counter()))
    texts = itertools.chain.from_iterable(run(parse, sample(blocks, settings.sample * 1_000_000)))
    return tokenizers.train(settings.kind, texts, settings.size, settings.lowercase)


Part = tuple[corpus.Reading, corpus.Block]


def sample(blocks: Iterable[Part], limit: int) -> list[Part]:
    """Returns evenly spaced blocks of at most `limit` bytes in total, but at least one block."""
    kept, stride = [], 1
    for number, part in enumerate(blocks):
        if number % stride:
            continue
        kept.append(part)
        while size(kept) > limit and len(kept) > 1:  # drops every second block, now and later
            stride, kept = 2 * stride, kept[::2]
    return kept


def size(parts: list[Part]) -> int:
    """Returns the number of bytes of text in blocks."""
    return sum(len(text) for _, block in parts for text in block)


def parse(part: Part) -> list[str]:
    """Runs in a worker: returns the documents of a block, with one sentence per line."""
    reading, block = part
    return ["\n".join(document) for document in corpus.documents(block, reading, Counter())]
