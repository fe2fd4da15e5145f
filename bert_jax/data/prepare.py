"""Documents -> token store, once, in parallel, in bounded memory.

    corpus -> blocks -> (process pool) ids and hashes -> spool on disk -> duplicates, held-out -> splits

Blocks and the order of their results do not depend on the number of workers, so neither does a bit
of the store. Beside a few blocks in flight, memory holds one byte a document and one partition of
the hashes.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax import tokenizer as tokenizers
from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.tokenizer import Tokenizer

PARTITIONS = 64  # files over which document hashes are spread by their first bits
LOG_EVERY = 10.0  # seconds
TRAIN, HELDOUT, DUPLICATE = range(3)


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


def open_or_refuse(config) -> stores.Store:
    """The store at `config.store`; BadInput, key by key, if `config` asks for another corpus or tokenizer."""
    store = stores.open_store(config.store)
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


# --- Directories and processes --------------------------------------------------------------------


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


def cores() -> int:
    """Cores this process may use; macOS does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@contextlib.contextmanager
def workers(number: int) -> Iterator[Callable]:
    """run(function, items) -> results in the order of the items, from `number` processes; 0 is one a core.

    Processes are spawned: JAX and TensorFlow run threads, and a fork would copy their locks.
    """
    number = number or cores()
    if number == 1:
        yield map
        return
    pool = ProcessPoolExecutor(number, get_context("spawn"), initializer=start_worker)
    try:
        yield functools.partial(run_in_order, pool, 2 * number + 1)
    finally:
        pool.shutdown(cancel_futures=True)


def run_in_order(
    pool: ProcessPoolExecutor, most: int, function: Callable, items: Iterable
) -> Iterator:
    """Like map, with at most `most` items or results under way, whatever the number of items."""
    waiting = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def start_worker() -> None:
    """A worker leaves Ctrl-C to its parent, ends when the parent is gone, and uses one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    connection.wait([parent_process().sentinel])
    os._exit(1)


# --- The steps ------------------------------------------------------------------------------------


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
    report = make_report(spool, split, unigrams, tokenizer)
    write_manifest(config, directory, source, tokenizer, report)
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


class Encoded(NamedTuple):
    """What a worker makes of one block. Of its documents, sentences and pieces none is empty."""

    tokens: np.ndarray  # uint16 or uint32[T]
    sentences: np.ndarray  # uint32[S]  tokens of each sentence
    documents: np.ndarray  # uint32[D]  sentences of each document
    hashes: np.ndarray  # uint64[D, 2]  of the document's tokens
    counts: Counter  # bytes, empty documents
    problems: Counter  # bad lines by reason


def tokenize(
    source: Source, saved: Path, tokenizer: Tokenizer, scratch: Path, run: Callable, log: Callable
) -> "Spool":
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


RECORD = np.dtype([("high", np.uint64), ("low", np.uint64), ("document", np.int64)])


class Spool:
    """Encoded blocks on disk, and their documents' hashes in files by first bits."""

    def __init__(self, directory: Path, kind: np.dtype):
        self.directory = directory
        self.kinds = {
            "tokens": kind,
            "sentences": np.dtype(np.uint32),
            "documents": np.dtype(np.uint32),
        }
        self.blocks = []  # (tokens, sentences, documents) of each block
        self.documents = 0
        self.counts, self.problems = Counter(), Counter()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.files = [
                stack.enter_context(open(self.directory / name, "wb")) for name in self.kinds
            ]
            self.partitions = [
                stack.enter_context(open(path, "wb")) for path in self.partition_paths()
            ]
            self.close = stack.pop_all().close
        return self

    def __exit__(self, *error):
        self.close()

    def partition_paths(self) -> list[Path]:
        return [self.directory / f"hashes-{number:02d}" for number in range(PARTITIONS)]

    def add(self, encoded: Encoded) -> None:
        arrays = encoded.tokens, encoded.sentences, encoded.documents
        for file, array in zip(self.files, arrays, strict=True):
            file.write(array)
        records = np.zeros(len(encoded.documents), RECORD)
        records["high"], records["low"] = encoded.hashes.T
        records["document"] = self.documents + np.arange(len(records))
        partition = (records["high"] // np.uint64(2**64 // PARTITIONS)).astype(int)
        for number in np.unique(partition):
            self.partitions[number].write(records[partition == number])
        self.blocks.append(tuple(map(len, arrays)))
        self.documents += len(records)
        self.counts += encoded.counts
        self.problems += encoded.problems

    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(tokens, sentences, documents) block by block."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(self.directory / name, "rb")) for name in self.kinds]
            for sizes in self.blocks:
                yield tuple(map(np.fromfile, files, self.kinds.values(), sizes))

    def unique(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(survivors, duplicates), document numbers, a partition at a time; survivors by their hashes.

        Of equal documents the first one survives.
        """
        for path in self.partition_paths():
            records = np.fromfile(path, RECORD)
            records = records[np.lexsort((records["document"], records["low"], records["high"]))]
            same = (np.diff(records["high"]) == 0) & (np.diff(records["low"]) == 0)
            first = np.concatenate([[True], ~same])[: len(records)]
            yield records["document"][first], records["document"][~first]


def choose_splits(spool: Spool, share: float) -> np.ndarray:
    """uint8[documents]: TRAIN, HELDOUT or DUPLICATE.

    Held out are the documents with the smallest hashes: a function of content, not of order.
    """
    split = np.full(spool.documents, TRAIN, np.uint8)
    for _, duplicates in spool.unique():
        split[duplicates] = DUPLICATE
    documents = int((split == TRAIN).sum())
    if documents < 4:
        what = "no document" if not documents else f"{documents} document{'s' * (documents > 1)}"
        problems = "".join(
            f", {number} {reason}" for reason, number in sorted(spool.problems.items())
        )
        raise BadInput(
            f"corpus: {what} with text{problems}; two to train on and two held out are the least"
        )
    wanted = min(max(2, round(share * documents)), documents - 2)
    for survivors, _ in spool.unique():
        split[survivors[:wanted]] = HELDOUT
        wanted -= min(wanted, len(survivors))
        if not wanted:
            return split


class ArrayFile:
    """A one-dimensional .npy file that grows; its header is written last."""

    def __init__(self, path: Path, kind: np.dtype):
        self.kind, self.length = np.dtype(kind), 0
        self.file = open(path, "wb")
        self.write_header()

    def write_header(self) -> None:
        # NumPy leaves room for any length, so the second header takes the place of the first.
        header = {"descr": self.kind.str, "fortran_order": False, "shape": (self.length,)}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, array: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(array, self.kind))
        self.length += len(array)

    def close(self) -> None:
        self.write_header()
        self.file.close()


class SplitWriter:
    """The arrays of one split, appended to block by block."""

    def __init__(self, directory: Path, kind: np.dtype):
        directory.mkdir()
        kinds = kind, np.int64, np.int64
        self.tokens, self.sentence_ends, self.document_ends = (
            ArrayFile(directory / f"{name}.npy", kind)
            for name, kind in zip(stores.ARRAYS, kinds, strict=True)
        )

    def append(self, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> None:
        """Takes lengths of sentences and documents; writes ends."""
        self.sentence_ends.append(self.tokens.length + np.cumsum(sentences, dtype=np.int64))
        self.document_ends.append(
            self.sentence_ends.length - len(sentences) + np.cumsum(documents, dtype=np.int64)
        )
        self.tokens.append(tokens)

    def close(self) -> None:
        for array in (self.tokens, self.sentence_ends, self.document_ends):
            array.close()


def write_splits(spool: Spool, split: np.ndarray, directory: Path, vocabulary: int) -> np.ndarray:
    """Writes both splits in the order of the corpus; returns the training unigrams, int64[V]."""
    unigrams = np.zeros(vocabulary, np.int64)
    writers = [SplitWriter(directory / name, spool.kinds["tokens"]) for name in stores.SPLITS]
    start = 0
    for tokens, sentences, documents in spool.read():
        of_document = split[start : start + len(documents)]
        of_sentence = np.repeat(of_document, documents)
        of_token = np.repeat(of_sentence, sentences)
        start += len(documents)
        for number, writer in enumerate(writers):
            chosen = tokens[of_token == number]
            writer.append(
                chosen, sentences[of_sentence == number], documents[of_document == number]
            )
            if number == TRAIN:
                unigrams += np.bincount(chosen, minlength=vocabulary)
    for writer in writers:
        writer.close()
    return unigrams


# --- What is told about it ------------------------------------------------------------------------


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
    config, directory: Path, source: Source, tokenizer: Tokenizer, report: dict
) -> None:
    splits = {}
    for name in stores.SPLITS:
        part = stores.open_split(directory / name)
        lengths = (len(part.document_ends), len(part.sentence_ends), len(part.tokens))
        splits[name] = dict(zip(("documents", "sentences", "tokens"), lengths, strict=True))
    report |= splits
    made = made_from(config)
    content = {path: stores.digest(directory / path) for path in content_paths()}
    text = json.dumps([made, tokenizer.fingerprint, content], sort_keys=True)
    manifest = {
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
        "made_from": made,
        "files_read": source.files_read,
        "vocabulary": tokenizer.size,
        "special": tokenizer.special,
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
