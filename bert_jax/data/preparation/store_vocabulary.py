"""The vocabulary of a store: given, or trained on a sample of the text, and kept for the next start."""

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from bert_jax.data.preparation import file_ranges
from bert_jax.data.preparation.encode import Vocabulary
from bert_jax.data.preparation.sample import sample, take
from bert_jax.data.vocabulary import given_vocabulary
from bert_jax.errors import BadInput
from bert_jax.storage.atomic import rename
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.tokenizer import Tokenizer


def saved_vocabulary(
    config, texts: list[file_ranges.Texts], directory: Path, run: Callable, log: Callable
) -> tuple[Vocabulary, Tokenizer]:
    """The vocabulary that is given or trained, saved in a directory that its fingerprint names."""
    tokenizer = None
    for path in directory.glob("vocabulary-*"):
        tokenizer = load(path)
    if not tokenizer:
        tokenizer = make_tokenizer(config, texts, run, log)
        temporary = directory / "vocabulary.writing"
        tokenizer.save(temporary)
        rename(temporary, directory / f"vocabulary-{tokenizer.fingerprint}")
    path = directory / f"vocabulary-{tokenizer.fingerprint}"
    return Vocabulary(str(path), tokenizer.fingerprint), tokenizer


def load(path: Path) -> Tokenizer | None:
    """The vocabulary of an earlier start; None, and no longer there, if it is damaged."""
    with contextlib.suppress(BadInput):
        tokenizer = tokenizers.load(path)
        if path.name == f"vocabulary-{tokenizer.fingerprint}":
            return tokenizer
    shutil.rmtree(path)
    return None


def make_tokenizer(
    config, texts: list[file_ranges.Texts], run: Callable, log: Callable
) -> Tokenizer:
    if config.tokenizer.path:
        return given_vocabulary(config)
    start, settings = time.monotonic(), config.tokenizer
    log("vocabulary: a sample of the text is read")
    chosen = sample(texts, settings.sample * 1_000_000)
    texts = itertools.chain.from_iterable(run(take, chosen))
    tokenizer = tokenizers.train(settings.kind, texts, settings.size, settings.lowercase)
    megabytes = sum(file_ranges.length(block) for _, block in chosen) / 1e6
    log(
        f"vocabulary: {tokenizer.size} pieces from {megabytes:.1f} MB in {time.monotonic() - start:.1f} s"
    )
    return tokenizer
