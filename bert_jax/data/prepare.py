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
from typing import NamedTuple

import numpy as np

from bert_jax import tokenizer as tokenizers
from bert_jax.data import corpus
from bert_jax.data import report as reports
from bert_jax.data import store as stores
from bert_jax.data.pool import workers
from bert_jax.data.report import Counted
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
    check_source(config)
    with new_directory(path) as directory, workers(config.corpus.workers) as run:
        return build(config, directory, run, log)


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
        f"corpus.{key}": config.corpus[key] for key in ("source", "format", "sentences", "heldout")
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
    now = there = store.manifest["files_read"]
    if config.corpus.source != "pydocs":
        with contextlib.suppress(BadInput):  # a store outlives its text files
            now = files_read(corpus.find_files(config.corpus.source))
    if now != there:
        raise BadInput(
            f"{config.store}: made from {there['files']} files of {there['bytes']} bytes, but config.corpus.source"
            f"={config.corpus.source!r} names {now['files']} of {now['bytes']} now; prepare into a new directory"
        )
    return store.manifest["report"]


def files_read(paths: list[Path]) -> dict:
    """What is cheap to know about text files: how many, their bytes together, a digest of names and sizes."""
    table = [[path.name, path.stat().st_size] for path in paths]
    digest = hashlib.sha256(json.dumps(table).encode()).hexdigest()
    return {"files": len(table), "bytes": sum(size for _, size in table), "sha256": digest}


def check_source(config) -> None:
    """Everything that can be known to be wrong before any work is done."""
    if config.corpus.source != "pydocs":
        corpus.find_files(config.corpus.source)
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


def build(config, directory: Path, run: Callable, log: Callable) -> dict:
    """Fills `directory` with the store."""
    start = time.monotonic()
    scratch = directory / "scratch"
    scratch.mkdir()
    source = text_source(config, scratch, run, log)
    tokenizer = make_tokenizer(config, source, log)
    tokenizer.save(directory / "tokenizer")
    spool = tokenize(source, directory / "tokenizer", tokenizer, scratch, run, log)
    split = choose_splits(spool, config.corpus.heldout)
    unigrams = write_splits(spool, split, directory, tokenizer.size)
    shutil.rmtree(scratch)
    np.save(directory / "unigrams.npy", unigrams)
    sources = source_table(config, directory)
    report = reports.make(config, directory, tokenizer, count(spool, split), sources)
    write_manifest(config, directory, source, tokenizer, report, sources)
    seconds = time.monotonic() - start
    return report | {
        "seconds": seconds,
        "megabytes_per_second": spool.counts["bytes"] / 1e6 / seconds,
    }


class Source(NamedTuple):
    """Text files and how to read them."""

    paths: list[Path]
    form: str
    sentences: str
    files_read: dict

    def blocks(self, problems: Counter) -> Iterator[corpus.Block]:
        return corpus.blocks(self.paths, self.form, problems)


def text_source(config, scratch: Path, run: Callable, log: Callable) -> Source:
    """The corpus as text files; pydocs is first written into one."""
    form, sentences = config.corpus.format, config.corpus.sentences
    if config.corpus.source != "pydocs":
        paths = corpus.find_files(config.corpus.source)
        sentences = {"auto": "lines" if form == "lines" else "rules"}.get(sentences, sentences)
        return Source(paths, form, sentences, files_read(paths))
    path = scratch / "pydocs.txt"
    corpus.write_pydocs(path, run)
    digest = stores.digest(path)
    log(
        f"pydocs: {path.stat().st_size / 1e6:.1f} MB of text, fingerprint {digest[:16]}"
        " (another one with other versions of Python and its packages)"
    )
    sentences = "rules" if sentences == "auto" else sentences
    return Source(
        [path], "lines", sentences, {"files": 1, "bytes": path.stat().st_size, "sha256": digest}
    )


def make_tokenizer(config, source: Source, log: Callable) -> Tokenizer:
    if config.tokenizer.path:
        return given_vocabulary(config)
    start = time.monotonic()
    sample = sample_blocks(source, config.tokenizer.sample * 1_000_000)
    tokenizer = tokenizers.train(sample, config.tokenizer.size, config.tokenizer.lowercase)
    megabytes = sum(len(text) for text in sample) / 1e6
    log(
        f"vocabulary: {tokenizer.size} pieces from {megabytes:.1f} M characters in {time.monotonic() - start:.1f} s"
    )
    return tokenizer


def sample_blocks(source: Source, limit: int) -> list[str]:
    """Documents of blocks that are evenly spread over the corpus, of `limit` bytes at most (but one block at least)."""
    kept, size, stride = [], 0, 1
    for number, block in enumerate(source.blocks(Counter())):
        if number % stride:
            continue
        kept.append(block)
        size += sum(map(len, block))
        while size > limit and len(kept) > 1:  # every second one has to go, and stay away
            stride *= 2
            kept = kept[::2]
            size = sum(len(text) for block in kept for text in block)
    parsed = (corpus.documents(block, source.form, "lines", Counter()) for block in kept)
    return ["\n".join(document) for documents in parsed for document in documents]


def tokenize(
    source: Source, saved: Path, tokenizer: Tokenizer, scratch: Path, run: Callable, log: Callable
) -> Spool:
    """All documents in the order of the corpus, duplicates too, in files under `scratch`."""
    spool = Spool(scratch, stores.token_type(tokenizer.size))
    function = functools.partial(
        encode_block, str(saved), tokenizer.fingerprint, source.form, source.sentences
    )
    start = reported = time.monotonic()
    with spool:
        for encoded in run(function, source.blocks(spool.problems)):
            spool.add(encoded)
            if time.monotonic() - reported > LOG_EVERY:
                reported = time.monotonic()
                megabytes = spool.counts["bytes"] / 1e6
                log(
                    f"prepare: {megabytes:,.0f} MB of text, {megabytes / (reported - start):.1f} MB/s"
                )
    return spool


def encode_block(
    saved: str, fingerprint: str, form: str, sentence_rule: str, block: corpus.Block
) -> Encoded:
    """Runs in a worker: the documents of a block as ids."""
    problems = Counter()
    parsed = corpus.documents(block, form, sentence_rule, problems)
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


def count(spool: Spool, split: np.ndarray) -> Counted:
    empty, duplicates = spool.counts["empty"], int((split == DUPLICATE).sum())
    problems = dict(spool.problems)
    return Counted(
        spool.counts["bytes"], spool.documents + empty, empty, duplicates, 0, problems, 0, 0.0, []
    )


def source_table(config, directory: Path) -> list[dict]:
    """Documents and tokens of each split, by source."""
    arrays = {"documents": "document_ends", "tokens": "tokens"}
    counts = {
        what: {
            name: len(np.load(directory / name / f"{array}.npy", mmap_mode="r"))
            for name in stores.SPLITS
        }
        for what, array in arrays.items()
    }
    return [{"source": config.corpus.source, **counts}]


def write_manifest(
    config, directory: Path, source: Source, tokenizer: Tokenizer, report: dict, sources: list
) -> None:
    splits = {name: report[name] for name in stores.SPLITS}
    made = made_from(config)
    content = {path: stores.digest(directory / path) for path in content_paths()}
    text = json.dumps([made, tokenizer.fingerprint, content], sort_keys=True)
    manifest = {
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
        "made_from": made,
        "files_read": source.files_read,
        "vocabulary": tokenizer.size,
        "special": tokenizer.special,
        "sources": sources,
        "splits": splits,
        "unigram_entropy": report["unigram_entropy"],
        "report": report,
    }
    stores.write_manifest(directory, manifest)


def content_paths() -> list[str]:
    return [f"{split}/{array}.npy" for split in stores.SPLITS for array in stores.ARRAYS]
