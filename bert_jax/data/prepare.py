"""Documents -> token store, once, in parallel, in bounded memory.

    corpus -> blocks -> (process pool) ids and hashes -> spool on disk -> duplicates, held-out -> splits

Blocks and the order of their results do not depend on the number of workers, so neither does a bit
of the store. Memory holds a few blocks in flight and what spool.py needs.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bert_jax import tokenizer as tokenizers
from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.data.pool import workers
from bert_jax.data.spool import DUPLICATE, Encoded, Spool, choose_splits, write_splits
from bert_jax.errors import BadInput
from bert_jax.tokenizer import Tokenizer

LOG_EVERY = 10.0  # seconds


def prepare(config, log: Callable[[str], None] = print) -> dict:
    """Makes the store that `config` asks for, or keeps the one that is there; returns the report.

    Raises BadInput for unusable text, files or vocabulary, and where the store is of another corpus or tokenizer. Until
    the store is whole nothing lies at `config.store`; after an error nothing is left.
    """
    path = Path(config.store)
    if path.exists() and not is_empty(path):
        if not (path / "manifest.json").exists():
            raise BadInput(f"config.store={config.store!r}: exists, and is not a token store")
        report = keep(config)
        log(f"store {path}: already prepared")
        return report
    check_vocabulary(config)
    sources = corpus.open_sources(config)
    with new_directory(path) as directory, workers(config.corpus.workers) as run:
        return build(config, sources, directory, run, log)


def open_or_refuse(config, *, hashes: bool = False) -> stores.Store:
    """The store at `config.store`; BadInput, key by key, if `config` asks for another corpus or tokenizer."""
    store = stores.open_store(config.store, hashes=hashes)
    there, asked = store.manifest["made_from"], made_from(config)
    differing = [key for key in sorted(asked | there) if there.get(key) != asked.get(key)]
    if differing:
        parts = (
            f"config.{key} {there.get(key)!r} there, {asked.get(key)!r} asked for"
            for key in differing
        )
        raise BadInput(f"{config.store}: a store made from something else: {'; '.join(parts)}")
    return store


def made_from(config) -> dict:
    """What decides a store's content, by key of the config; a vocabulary counts by its content, not its place."""
    made = {
        f"corpus.{key}": config.corpus[key]
        for key in ("source", "format", "field", "sentences", "heldout")
    }
    keys = (
        ("kind", "lowercase") if config.tokenizer.path else ("kind", "lowercase", "size", "sample")
    )
    made |= {f"tokenizer.{key}": config.tokenizer[key] for key in keys}
    if config.tokenizer.path:
        made["tokenizer.path"] = given_vocabulary(config).fingerprint
    return made


def given_vocabulary(config) -> Tokenizer:
    return tokenizers.from_vocab(config.tokenizer.path, config.tokenizer.lowercase)


def keep(config) -> dict:
    """The report of a finished store, if it is of this config and its text files are what they were."""
    store = open_or_refuse(config)
    there = store.manifest["files_read"]
    now = files_now(config)
    for name in now:
        if now[name] and now[name] != there[name]:
            raise BadInput(
                f"{config.store}: made from {describe_files(there[name])}, but config.corpus.source={name!r} names"
                f" {describe_files(now[name])} now; prepare into a new directory"
            )
    return store.manifest["report"]


def files_now(config) -> dict:
    """What is known of the sources now, by name; {} where they are gone, which a store outlives."""
    with contextlib.suppress(BadInput):
        return {source.name: source.files_read for source in corpus.open_sources(config)}
    return {}


def describe_files(known: dict) -> str:
    return ", ".join(f"{number} {what}" for what, number in known.items() if what != "sha256")


def check_vocabulary(config) -> None:
    if config.tokenizer.path:
        given_vocabulary(config)


def is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary sibling that takes the name `path` when the block ends well, and goes when it does not.

    It is locked, so that one left behind by a kill is told from one that another process is filling.
    """
    directory = path.parent / f".{path.name}.preparing"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"config.store={str(path)!r}: cannot be written ({error.strerror})"
        ) from None
    try:
        take(lock, directory, path)
        empty(directory)
        try:
            yield directory
            directory.rename(path)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def take(lock: int, directory: Path, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(f"config.store={str(path)!r}: another process is preparing it") from None
    if not directory.exists():
        raise BadInput(f"config.store={str(path)!r}: another process has just prepared it")


def empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def build(
    config, sources: list[corpus.Source], directory: Path, run: Callable, log: Callable
) -> dict:
    """Fills `directory` with the store."""
    start = time.monotonic()
    scratch = directory / "scratch"
    scratch.mkdir()
    sources = [corpus.materialize(source, scratch, run) for source in sources]
    for source in sources:
        log(f"{source.name}: {source.files_read}")
    tokenizer = make_tokenizer(config, sources, log)
    tokenizer.save(directory / "tokenizer")
    spool = tokenize(sources, directory / "tokenizer", tokenizer, scratch, run, log)
    split = choose_splits(spool, config.corpus.heldout)
    unigrams = write_splits(spool, split, directory, tokenizer.size)
    shutil.rmtree(scratch)
    np.save(directory / "unigrams.npy", unigrams)
    report = make_report(spool, split, unigrams, tokenizer)
    write_manifest(config, directory, sources, tokenizer, report)
    seconds = time.monotonic() - start
    return report | {
        "seconds": seconds,
        "megabytes_per_second": spool.counts["bytes"] / 1e6 / seconds,
    }


def make_tokenizer(config, sources: list[corpus.Source], log: Callable) -> Tokenizer:
    if config.tokenizer.path:
        return given_vocabulary(config)
    start = time.monotonic()
    sample = sample_texts(sources, config.tokenizer.sample * 1_000_000)
    tokenizer = tokenizers.train(sample, config.tokenizer.size, config.tokenizer.lowercase)
    megabytes = sum(len(text) for text in sample) / 1e6
    log(
        f"vocabulary: {tokenizer.size} pieces from {megabytes:.1f} M characters in {time.monotonic() - start:.1f} s"
    )
    return tokenizer


def sample_texts(sources: list[corpus.Source], limit: int) -> list[str]:
    """Documents of blocks that are evenly spread over the corpus, of `limit` bytes at most (but one block at least)."""
    kept, size, stride = [], 0, 1
    found = ((source, block) for source in sources for block in source.blocks(Counter()))
    for number, (source, block) in enumerate(found):
        if number % stride:
            continue
        kept.append((source.reading._replace(sentences="lines"), block))
        size += sum(map(len, block))
        while size > limit and len(kept) > 1:  # every second one has to go, and stay away
            stride *= 2
            kept = kept[::2]
            size = sum(len(text) for _, block in kept for text in block)
    parsed = (corpus.documents(block, reading, Counter()) for reading, block in kept)
    return ["\n".join(document) for documents in parsed for document in documents]


def tokenize(
    sources: list[corpus.Source],
    saved: Path,
    tokenizer: Tokenizer,
    scratch: Path,
    run: Callable,
    log: Callable,
) -> Spool:
    """All documents in the order of the corpus, duplicates too, in files under `scratch`."""
    spool = Spool(scratch, stores.token_type(tokenizer.size))
    function = functools.partial(encode_block, str(saved), tokenizer.fingerprint)
    start = reported = time.monotonic()
    with spool:
        items = (
            (source.reading, block) for source in sources for block in source.blocks(spool.problems)
        )
        for encoded in run(function, items):
            spool.add(encoded)
            if time.monotonic() - reported > LOG_EVERY:
                reported = time.monotonic()
                megabytes = spool.counts["bytes"] / 1e6
                log(
                    f"prepare: {megabytes:,.0f} MB of text, {megabytes / (reported - start):.1f} MB/s"
                )
    return spool


def encode_block(
    saved: str, fingerprint: str, item: tuple[corpus.Reading, corpus.Block]
) -> Encoded:
    """Runs in a worker: the documents of a block as ids."""
    reading, block = item
    problems = Counter()
    parsed = corpus.documents(block, reading, problems)
    table = word_table(saved, fingerprint)
    kind = stores.token_type(table.tokenizer.size)
    tokens, ends = table.encode([sentence for document in parsed for sentence in document])
    tokens = tokens.astype(kind)
    lengths = np.diff(ends, prepend=0)
    # A sentence of nothing but control characters has no pieces, and a document of such sentences
    # no sentences.
    sizes = np.array([len(document) for document in parsed], np.int64)
    owners = np.repeat(np.arange(len(parsed)), sizes)[lengths > 0]
    sentences = np.bincount(owners, minlength=len(parsed))
    documents, lengths = sentences[sentences > 0], lengths[lengths > 0]
    stops = np.cumsum(lengths)[np.cumsum(documents) - 1]
    hashes = [hash_tokens(part) for part in np.split(tokens, stops[:-1])] if len(stops) else []
    counts = Counter(bytes=sum(map(len, block)), empty=int((sentences == 0).sum()))
    return Encoded(
        tokens,
        lengths.astype(np.uint32),
        documents.astype(np.uint32),
        np.array(hashes, np.uint64).reshape(-1, 2),
        counts,
        problems,
    )


@functools.lru_cache(maxsize=1)
def word_table(saved: str, fingerprint: str) -> tokenizers.WordTable:
    """One a process, kept between blocks; the fingerprint tells apart what lay at the same place."""
    return tokenizers.WordTable(tokenizers.load(saved))


def hash_tokens(tokens: np.ndarray) -> tuple[int, int]:
    """128 bits of a document's ids, as two integers: what is equal to the model is a duplicate."""
    digest = hashlib.blake2b(tokens.astype("<u4").tobytes(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that counts give."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def make_report(
    spool: Spool, split: np.ndarray, unigrams: np.ndarray, tokenizer: Tokenizer
) -> dict:
    """Counts of what was read and kept; a function of the corpus, so it can lie in the manifest."""
    return {
        "bytes": spool.counts["bytes"],
        "empty": spool.counts["empty"],
        "duplicates": int((split == DUPLICATE).sum()),
        "problems": dict(sorted(spool.problems.items())),
        "unknown_share": float(unigrams[tokenizer.unk] / unigrams.sum()),
        "pieces_per_word": float(unigrams.sum() / unigrams[tokenizer.word_starts].sum()),
        "unigram_entropy": entropy(unigrams),
    }


def write_manifest(
    config,
    directory: Path,
    sources: list[corpus.Source],
    tokenizer: Tokenizer,
    report: dict,
) -> None:
    splits = {}
    for name in stores.SPLITS:
        arrays = [
            np.load(directory / name / f"{array}.npy", mmap_mode="r") for array in stores.ARRAYS
        ]
        lengths = map(len, reversed(arrays))
        splits[name] = dict(zip(("documents", "sentences", "tokens"), lengths, strict=True))
    report |= splits
    made = made_from(config)
    content = {path: stores.digest(directory / path) for path in content_paths()}
    text = json.dumps([made, tokenizer.fingerprint, content], sort_keys=True)
    manifest = {
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
        "made_from": made,
        "files_read": {source.name: source.files_read for source in sources},
        "vocabulary": tokenizer.size,
        "special": tokenizer.special,
        "sources": [
            {
                "source": config.corpus.source,
                "documents": {name: splits[name]["documents"] for name in splits},
            }
        ],
        "splits": splits,
        "unigram_entropy": report["unigram_entropy"],
        "report": report,
    }
    stores.write_manifest(directory, manifest)


def content_paths() -> list[str]:
    return [f"{split}/{array}.npy" for split in stores.SPLITS for array in stores.ARRAYS]


def describe(report: dict) -> list[str]:
    """The report as a few lines to read."""
    lines = [
        f"{name}: {report[name]['documents']:,} documents, {report[name]['sentences']:,} sentences,"
        f" {report[name]['tokens']:,} tokens"
        for name in stores.SPLITS
    ]
    lines.append(
        f"left out: {report['duplicates']:,} duplicate and {report['empty']:,} empty documents"
    )
    lines += [f"problems: {number:,} {reason}" for reason, number in report["problems"].items()]
    lines.append(
        f"{report['bytes'] / 1e6:,.1f} MB, {report['pieces_per_word']:.2f} pieces a word, {report['unknown_share']:.2%}"
        f" unknown, unigram entropy {report['unigram_entropy']:.2f} nats"
    )
    if "seconds" in report:
        lines.append(f"{report['seconds']:.1f} s, {report['megabytes_per_second']:.1f} MB/s")
    return lines
