"""The vocabulary of a store: given, trained on a sample of its text, or likely, where no store is there."""

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


def given_vocabulary(config) -> Tokenizer:
    """Of the file at config.tokenizer.path, which may be an address. Raises BadInput, naming it so."""
    path = download.file(config.tokenizer.path)
    with remote.naming(path, config.tokenizer.path):
        return tokenizers.given(path, config.tokenizer.lowercase)


def likely_vocabulary(config, tell: Callable[[str], None]) -> Vocabulary:
    """That of the store, or of the given tokenizer, where there is one; otherwise one of the size that is asked for."""
    if download.is_there(config.store):
        manifest = download.manifest(config.store)
        return Vocabulary(manifest["vocabulary"], **manifest["special"])
    if config.tokenizer.path and remote.exists(config.tokenizer.path):
        given = given_vocabulary(config)
        return Vocabulary(given.size, **given.special)
    if config.tokenizer.path:
        size = f"config.tokenizer.size={config.tokenizer.size}"
        tell(f"config.tokenizer.path={config.tokenizer.path}: not there, {size} instead")
    return Vocabulary(config.tokenizer.size, **{name: id for id, name in enumerate(SPECIAL)})


def saved_vocabulary(
    config, sources: list[corpus.Source], path: Path, run: Callable, log: Callable
) -> Tokenizer:
    """The given or trained vocabulary, saved in the directory `path` for workers and the next start."""
    if not path.exists():
        temporary = path.with_suffix(".writing")
        made = given_vocabulary(config) if config.tokenizer.path else None
        (made or train(config.tokenizer, sources, run, log)).save(temporary)
        rename(temporary, path)
    return tokenizers.load(path)


def train(settings, sources: list[corpus.Source], run: Callable, log: Callable) -> Tokenizer:
    """`settings` is config.tokenizer."""
    log("vocabulary: a sample of the text is read")
    blocks = ((source.reading, block) for source in sources for block in source.blocks(Counter()))
    texts = itertools.chain.from_iterable(run(take, sample(blocks, settings.sample * 1_000_000)))
    return tokenizers.train(settings.kind, texts, settings.size, settings.lowercase)


Part = tuple[corpus.Reading, corpus.Block]


def sample(blocks: Iterable[Part], limit: int) -> list[Part]:
    """Every so many blocks, at most `limit` bytes together, but one at least."""
    kept, stride = [], 1
    for number, part in enumerate(blocks):
        if number % stride:
            continue
        kept.append(part)
        while size(kept) > limit and len(kept) > 1:  # every second one has to go, and stay away
            stride, kept = 2 * stride, kept[::2]
    return kept


def size(parts: list[Part]) -> int:
    return sum(len(text) for _, block in parts for text in block)


def take(part: Part) -> list[str]:
    """Runs in a worker: the documents of a block, a sentence a line."""
    reading, block = part
    return ["\n".join(document) for document in corpus.documents(block, reading, Counter())]
