"""Documents -> token store, once, in parallel, in bounded memory; what is killed continues from whole shards.

    sources -> blocks of text -> shards of ids and hashes -> copies out, held-out documents apart -> store

This process reads the text; a pool of processes or Apache Beam makes shards of it. Blocks, shards and their order
depend on neither, on no number of workers and no interruptions, so neither does a bit of the store. Memory holds a few
blocks of text a worker, the sample for a vocabulary, and 64 bytes a document.
"""

import hashlib
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bert_jax.data import corpus, download, report
from bert_jax.data import store as stores
from bert_jax.data.preparation import selection, splits
from bert_jax.data.preparation.encode import Vocabulary, encode
from bert_jax.data.preparation.pool import workers
from bert_jax.data.preparation.vocabulary import saved_vocabulary
from bert_jax.data.preparation.workspace import hidden, locate, workspace
from bert_jax.data.vocabulary import given_vocabulary
from bert_jax.errors import BadInput, Unfinished
from bert_jax.storage import checksums, remote
from bert_jax.storage.atomic import rename, terminable
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.tokenizer import Tokenizer

# Libraries that decide the bits of a store, beside the code of this package.
DECIDING = ("numpy", "tokenizers", "sentencepiece")


def prepare(
    config,
    log: Callable[[str], None] = print,
    runner: Callable[[Path], Callable] | None = None,
) -> dict:
    """Makes the store that `config` asks for, or keeps the one that is there; returns the report.

    `runner` (beam.open_runner) does the work in place of a pool of processes on this machine.

    Nothing lies at `config.store` until the store is whole. Whatever stops this, the next start continues from the
    shards that were whole. Raises BadInput, and leaves nothing, for unusable text, files or vocabulary, and where the
    store is of another corpus or tokenizer; Unfinished where the machine fails, as by a full disk. SIGTERM is
    SystemExit here, once the workers have ended.
    """
    if remote.is_address(config.store):
        return prepare_there(config, log, runner)
    path = locate(config.store)
    if (path / "manifest.json").exists():
        kept = keep(config)
        shutil.rmtree(hidden(path), ignore_errors=True)  # of a process that was killed at its end
        log(f"store {path}: already prepared, from this text as far as names and sizes tell")
        return kept
    sources = corpus.open_sources(config)
    made_from(config)  # looks at a given vocabulary
    try:
        with (
            terminable(),
            tempfile.TemporaryDirectory() as scratch,
            workers(config.corpus.workers) as here,
        ):
            sources = [corpus.materialize(source, Path(scratch), here) for source in sources]
            with workspace(path, key(config, sources), log) as directory:
                run = runner(directory / "tasks") if runner else here
                return build(config, path, sources, directory, run, log)
    except (OSError, BrokenProcessPool, Unfinished) as error:
        raise Unfinished(
            f"config.store={config.store!r}: not finished ({error}); {hidden(path)} stays, the next start continues"
        ) from error


def prepare_there(config, log: Callable[[str], None], runner: Callable | None) -> dict:
    """The same for a store at an address: it is made on this host and copied there, the manifest last."""
    if download.is_there(config.store):
        kept = keep(config)
        log(
            f"store {config.store}: already prepared, from this text as far as names and sizes tell"
        )
        return kept
    download.check_free(config.store)
    made = config.copy_and_resolve_references()
    with made.unlocked():
        made.store = str(download.making(config.store, made_from(config)))
    result = prepare(made, log, runner)
    log(f"prepare: the store is copied to {config.store}")
    download.upload(Path(made.store), config.store)
    return result


def open_or_refuse(config, *, hashes: bool = False) -> stores.Store:
    """The store at `config.store`; BadInput, key by key, if `config` asks for another corpus or tokenizer."""
    path = download.local(config.store, hashes=config.store_hashes)
    store = stores.open_store(path, hashes=hashes)
    there, asked = store.manifest["made_from"], made_from(config)
    if config.tokenizer.path:
        kept = tokenizers.load(store.path / "tokenizer")
        if kept.fingerprint == given_vocabulary(config).fingerprint:
            # Whether it was given or trained, it cuts the text like this.
            there, asked = (
                {k: v for k, v in made.items() if not k.startswith("tokenizer.")}
                for made in (there, asked)
            )
    if refused := differing(there, asked):
        raise BadInput(f"{config.store}: a store made from something else: {'; '.join(refused)}")
    return store


def differing(there: dict, asked: dict) -> list[str]:
    """The keys whose values are not the same, one line each; None where a key is not used."""
    return [
        f"config.{key}: {there.get(key)!r} there, {asked.get(key)!r} asked for"
        for key in sorted(asked | there)
        if there.get(key) != asked.get(key)
    ]


def made_from(config) -> dict:
    """What decides a store's content, by key of the config; a vocabulary counts by its content, not its place."""
    keys = "source", "format", "field", "sentences", "heldout"
    made = {f"corpus.{key}": config.corpus[key] for key in keys}
    made |= {f"filter.{key}": value for key, value in config.filter.items()}
    if config.tokenizer.path:
        made["tokenizer.path"] = given_vocabulary(config).fingerprint
        # Of the files that can be given, a vocab.txt alone does not know its case.
        txt = Path(config.tokenizer.path).suffix == ".txt"
        return made | ({"tokenizer.lowercase": config.tokenizer.lowercase} if txt else {})
    keys = "kind", "size", "lowercase", "sample"
    return made | {f"tokenizer.{key}": config.tokenizer[key] for key in keys}


def keep(config) -> dict:
    """The report of a finished store, if it is of this config and of text of these names and sizes.

    That text was altered and has kept its size is not seen.
    """
    store = open_or_refuse(config, hashes=config.store_hashes)
    try:
        sources = corpus.open_sources(config)
    except BadInput:  # a store outlives its text files
        sources = []
    for source, there in zip(sources, store.manifest["files_read"], strict=False):
        now = source.files_read or there  # that of pydocs is known once it is written
        if now != there:
            raise BadInput(
                f"{config.store}: made from {there}, but config.corpus.source {source.name!r} names {now} now; prepare"
                " into a new directory"
            )
    path, expected = store.path / "report.json", store.manifest["files"]["report.json"]
    if problem := checksums.check_file(store.path, path.name, expected, hashes=True):
        raise BadInput(f"{path}: {problem}")
    numbers = json.loads(path.read_text())
    return report.make(config, store.path, tokenizers.load(store.path / "tokenizer"), numbers)


def key(config, sources: list[corpus.Source]) -> str:
    """A digest of all that decides the bits of shards and vocabulary, as far as it is cheap to know."""
    code = (path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    named = (source.paths for source in sources if source.name != "pydocs")
    times = [path.stat().st_mtime_ns for paths in named for path in paths]
    known = [source.files_read for source in sources]
    versions = [version(name) for name in DECIDING]
    text = json.dumps([made_from(config), known, times, versions])
    return hashlib.sha256(b"".join([text.encode(), *code])).hexdigest()[:16]


def build(config, path: Path, sources: list, directory: Path, run: Callable, log: Callable) -> dict:
    """Makes a store in `directory` and renames it to `path`; returns its report and how long it took.

    `run` maps a function over tasks.
    """
    start = time.monotonic()
    tokenizer = saved_vocabulary(config, sources, directory / "vocabulary", run, log)
    log("prepare: the text is read and encoded")
    vocabulary = Vocabulary(directory / "vocabulary", tokenizer.fingerprint)
    problems, counts = Counter(), Counter()
    shards = encode(sources, vocabulary, directory / "shards", problems, run, log)
    hashes = [np.zeros((0, 2), "<u8")]
    for shard in shards:
        header = shard.header()
        counts.update(header["counts"])
        problems.update(header["problems"])
        hashes += shard.read("text_hashes")
    hashes = np.concatenate(hashes)
    log("prepare: the splits are written")
    store = directory / "store"
    shutil.rmtree(store, ignore_errors=True)  # of an earlier start
    store.mkdir()
    state = selection.select(hashes, config.corpus.heldout, config.filter.duplicates, problems)
    written = splits.write(shards, state, len(sources), store, tokenizer.size)
    np.save(store / stores.HELDOUT_HASHES, hashes[state == selection.HELDOUT])
    counts["copies"] = int((state == selection.COPY).sum())
    result = finish(config, sources, store, tokenizer, counts, problems, written)
    rename(store, path)
    seconds = time.monotonic() - start
    speed = counts["bytes"] / 1e6 / seconds
    return result | {"seconds": seconds, "megabytes_per_second": speed}


def finish(
    config,
    sources: list[corpus.Source],
    directory: Path,
    tokenizer: Tokenizer,
    counts: Counter,
    problems: Counter,
    written: splits.Written,
) -> dict:
    """Adds to the splits in `directory` all else that a store holds, the manifest last; returns the report."""
    tokenizer.save(directory / "tokenizer")
    np.save(directory / "unigrams.npy", written.unigrams)
    table = [
        {
            "source": source.name,
            "format": source.reading.form,
            "documents": dict(zip(stores.SPLITS, documents, strict=True)),
            "tokens": dict(zip(stores.SPLITS, tokens, strict=True)),
        }
        for source, documents, tokens in zip(
            sources, written.documents.tolist(), written.tokens.tolist(), strict=True
        )
    ]
    numbers = report.measure(directory, tokenizer, counts, problems, table)
    (directory / "report.json").write_text(json.dumps(numbers, indent=1) + "\n")
    result = report.make(config, directory, tokenizer, numbers)
    text = "".join(f"{line}\n" for line in report.describe(result))
    (directory / "report.txt").write_text(text, encoding="utf-8")
    paths = [f"{split}/{array}.npy" for split in stores.SPLITS for array in stores.ARRAYS]
    content = {path: checksums.digest(directory / path) for path in paths}
    made = made_from(config)
    identity = json.dumps([made, tokenizer.fingerprint, content, table], sort_keys=True)
    manifest = {
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "made_from": made,
        "files_read": [source.files_read for source in sources],
        "vocabulary": tokenizer.size,
        "special": tokenizer.special,
        "sources": table,
        "splits": {name: result[name] for name in stores.SPLITS},
        "unigram_entropy": stores.entropy(written.unigrams.sum(axis=0)),
    }
    stores.write_manifest(directory, manifest)
    return result
