"""The vocabulary of a config: read from a file, trained on a sample of the corpus, or assumed if there is no store."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from bert_jax.data import download
from bert_jax.data.preparation import corpus, encode, splits
from bert_jax.errors import BadInput
from bert_jax.storage import atomic, remote
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import training
from bert_jax.tokenizers.special_tokens import Vocabulary, check_task


def tokenizer_from_file(config) -> tokenizers.Tokenizer:
    """Loads the tokenizer file at config.tokenizer.path, a path or a remote address.

    Raises BadInput that names it, also if it lacks special tokens that the task needs.
    """
    settings = config.tokenizer
    path = download.local_file(settings.path)
    try:
        with remote.naming(path, settings.path):
            rules = settings.lowercase, settings.add_special, settings.keep_accents
            tokenizer = tokenizers.from_file(path, *rules)
    except BadInput as error:
        raise BadInput(
            f"{error}; name another file in config.tokenizer.path, or '' to train a vocabulary"
        ) from None
    check_task(config, tokenizer, settings.path)
    return tokenizer


def expected_vocabulary(config, log: Callable) -> Vocabulary:
    """Returns the vocabulary of the store or, if there is none, of the file at config.tokenizer.path.

    If there is neither, assumes one of config.tokenizer.size pieces. Raises BadInput if it lacks special tokens that
    the task needs.
    """
    path = config.tokenizer.path
    if download.exists(config.store):
        file = download.local_file(f"{config.store.rstrip('/')}/tokenizer/settings.json")
        tokenizer = tokenizers.load(file.parent)
        check_task(config, tokenizer, config.store)
    elif path and remote.exists(path):
        tokenizer = tokenizer_from_file(config)
    else:
        size = config.tokenizer.size
        if path:
            log(f"config.tokenizer.path={path}: not found, assuming {size} pieces instead")
        return Vocabulary(size, **training.of_config(config.tokenizer).special_ids)
    return Vocabulary(tokenizer.size, **tokenizer.special)


def load_or_train(
    config, sources: list[corpus.Source], path: Path, run: Callable, log: Callable
) -> tokenizers.Tokenizer:
    """Loads the tokenizer from the directory `path`; if it is missing, first reads or trains it and saves it there.

    path: in the workspace.
    run: maps a function over tasks, in order.
    """
    if not path.exists():
        if config.tokenizer.path:
            tokenizer = tokenizer_from_file(config)
        else:
            tokenizer = train(config, sources, path.parent, run, log)
        temporary = path.with_suffix(".writing")
        tokenizer.save(temporary)
        atomic.rename(temporary, path)
    return tokenizers.load(path)


def load_or_train_on_texts(config, texts: list[str]) -> tokenizers.Tokenizer:
    """Reads the tokenizer at config.tokenizer.path or, without it, trains one on evenly spaced ones of the texts, about
    as many megabytes as config.tokenizer.sample. Raises BadInput if that is impossible."""
    settings = config.tokenizer
    if settings.path:
        return tokenizer_from_file(config)
    size = sum(len(text.encode()) for text in texts)
    stride = math.ceil(size / max(1, settings.sample * 1_000_000))
    sampled = texts[:: max(1, stride)]
    return train_on(settings, sampled)


def train_on(settings, texts: Iterable[str], is_exact: bool = False) -> tokenizers.Tokenizer:
    """Trains the tokenizer of config.tokenizer, see `tokenizers.train`."""
    keys = settings.kind, texts, settings.size, settings.lowercase
    return tokenizers.train(*keys, is_exact, training.of_config(settings))


def train(
    config, sources: list[corpus.Source], directory: Path, run: Callable, log: Callable
) -> tokenizers.Tokenizer:
    """Trains a tokenizer on a sample of the sources, without the documents that will be held out; bytes need none.

    directory: the workspace, which keeps the documents.

    Raises BadInput if there are too few documents.
    """
    settings = config.tokenizer
    if settings.kind == "bytes":
        return train_on(settings, ())
    log("prepare: reading the text for a sample to train the vocabulary on")
    (directory / "documents").mkdir(exist_ok=True)
    problems = Counter()
    # All blocks are read first, so that the order of the problems does not depend on the number of workers.
    blocks = list(run(encode.parse, encode.tasks(sources, directory, problems)))
    for block in blocks:
        problems.update(block.problems)
    hashes = np.concatenate([np.zeros((0, 2), "<u8"), *(block.hashes for block in blocks)])
    by_position = np.concatenate([np.zeros(0, bool), *(block.by_position for block in blocks)])
    sizes = [len(block.hashes) for block in blocks]
    numbers = np.repeat([block.shard.source for block in blocks], sizes)
    state = splits.assign(config, hashes, by_position, False, problems, numbers)
    states = np.split(state, np.cumsum(sizes))
    stride = sample_stride([block.size for block in blocks], settings.sample * 1_000_000)
    texts = []
    for index in range(0, len(blocks), stride):
        documents = filter(None, blocks[index].shard.parsed.header()["documents"])
        documents = itertools.compress(documents, states[index] == splits.TRAIN)
        texts += map("\n".join, documents)
    is_exact = config.corpus.sentences == "none"
    return train_on(settings, texts, is_exact)


def sample_stride(sizes: list[int], limit: int) -> int:
    """Returns n, a power of two, so that every n-th of the sizes is at most `limit` in total, or a single one."""
    stride = 1
    while sum(sizes[::stride]) > limit and stride < len(sizes):
        stride *= 2
    return stride
