"""The vocabulary of a config: read from a file, trained on a sample of the corpus, or assumed if there is no store."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from bert_jax.data import corpus, download
from bert_jax.data.preparation import encode, splits
from bert_jax.errors import BadInput
from bert_jax.storage import atomic, remote
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import IDS, Vocabulary, check_task


def tokenizer_from_file(config) -> tokenizers.Tokenizer:
    """Loads the tokenizer file at config.tokenizer.path, a path or a remote address.

    Raises BadInput that names it, also if it lacks special tokens that the task needs.
    """
    settings = config.tokenizer
    path = download.local_file(settings.path, tokenizers.beside(settings.path))
    try:
        with remote.naming(path, settings.path):
            tokenizer = tokenizers.from_file(path, settings.lowercase, settings.add_special)
    except BadInput as error:
        raise BadInput(
            f"{error}; name another file in config.tokenizer.path, or '' to train a vocabulary"
        ) from None
    check_task(config, tokenizer.special, settings.path)
    if tokenizer.ends and config.task.get("masking", "token") != "token":
        problem = f"its pieces mark where words end ({tokenizer.ends}), not where they start"
        raise BadInput(f"config.task.masking={config.task.masking!r}: {settings.path}: {problem}")
    return tokenizer


def expected_vocabulary(config, log: Callable) -> Vocabulary:
    """Returns the vocabulary of the store or, if there is none, of the file at config.tokenizer.path.

    If there is neither, assumes one of config.tokenizer.size pieces. Raises BadInput if it lacks special tokens that
    the task needs.
    """
    if download.exists(config.store):
        manifest = download.read_manifest(config.store)
        check_task(config, manifest["special"], config.store)
        return Vocabulary(manifest["vocabulary"], **manifest["special"])
    path = config.tokenizer.path
    if path and remote.exists(path):
        tokenizer = tokenizer_from_file(config)
        return Vocabulary(tokenizer.size, **tokenizer.special)
    if path:
        log(
            f"config.tokenizer.path={path}: not found,"
            f" assuming config.tokenizer.size={config.tokenizer.size} instead"
        )
    return Vocabulary(config.tokenizer.size, **IDS)


def load_or_train(
    config, sources: list[corpus.Source], path: Path, run: Callable, log: Callable
) -> tokenizers.Tokenizer:
    """Loads the tokenizer from the directory `path`; if it is missing, first reads or trains it and saves it there.

    run: maps a function over tasks, in order.
    """
    if not path.exists():
        if config.tokenizer.path:
            tokenizer = tokenizer_from_file(config)
        else:
            tokenizer = train(config, sources, run, log)
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
    return tokenizers.train(settings.kind, sampled, settings.size, settings.lowercase)


def train(
    config, sources: list[corpus.Source], run: Callable, log: Callable
) -> tokenizers.Tokenizer:
    """Trains a tokenizer on a sample of the sources, without the documents that will be held out; bytes need none.

    Raises BadInput if there are too few documents.
    """
    settings = config.tokenizer
    if settings.kind == "bytes":
        return tokenizers.train(settings.kind, (), settings.size, settings.lowercase)
    log("prepare: reading the text for a sample to train the vocabulary on")
    problems = Counter()
    blocks = (block for source in sources for block in source.blocks(problems))
    sampled_blocks = []
    sampling = sample(blocks, settings.sample * 1_000_000, sampled_blocks)
    hashes = [np.zeros((0, 2), "<u8")]
    in_place = [np.zeros(0, bool)]
    # All blocks are read first, so that the order of the problems does not depend on the number of workers.
    for block_hashes, block_places, block_problems in list(run(hash_block, sampling)):
        hashes.append(block_hashes)
        in_place.append(block_places)
        problems += block_problems
    hashes = np.concatenate(hashes)
    state = splits.assign(config, hashes, np.concatenate(in_place), False, problems)
    documents = [
        (digest, "\n".join(document))
        for pairs in run(encode.hash_documents, sampled_blocks)
        for digest, document in pairs
    ]
    # As Python objects, hashes of the sample alone.
    heldout = dict(documents).keys() & map(tuple, hashes[state == splits.HELDOUT])
    texts = (text for digest, text in documents if digest not in heldout)
    is_exact = config.corpus.sentences == "none"
    return tokenizers.train(settings.kind, texts, settings.size, settings.lowercase, is_exact)


def sample(
    blocks: Iterable[corpus.Block], limit: int, sampled: list[corpus.Block]
) -> Iterator[corpus.Block]:
    """Yields all blocks. Leaves evenly spaced ones in `sampled`: at most `limit` bytes in total, but at least one."""
    stride = 1
    for number, block in enumerate(blocks):
        if number % stride == 0:
            sampled.append(block)
            # Drops every second block, now and later.
            while sum(block.size for block in sampled) > limit and len(sampled) > 1:
                stride *= 2
                del sampled[1::2]
        yield block


def hash_block(block: corpus.Block) -> tuple[np.ndarray, np.ndarray, Counter]:
    """Runs in a worker: returns of the documents of a block their hashes, whether they are held out by their places,
    and the number of problems by reason."""
    problems = Counter()
    documents = corpus.documents(block, problems)
    places = corpus.heldout_places(block, documents)
    return encode.text_hashes(documents), places, problems
