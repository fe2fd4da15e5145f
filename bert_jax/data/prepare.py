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

from bert_jax.data import corpus, download, origin, report
from bert_jax.data import manifest as manifests
from bert_jax.data import store as stores
from bert_jax.data.preparation import splits
from bert_jax.data.preparation.encode import encode
from bert_jax.data.preparation.pool import workers
from bert_jax.data.preparation.workspace import hidden, locate, workspace
from bert_jax.data.vocabulary import saved_vocabulary
from bert_jax.errors import BadInput, Unfinished
from bert_jax.storage import checksums, remote
from bert_jax.storage.atomic import rename, terminable
from bert_jax.tokenizers.tokenizer import Tokenizer

# Libraries that decide the bits of a store, beside the code of this package.
DECIDING = ("numpy", "tokenizers", "sentencepiece")


def prepare(
    config,
    log: Callable[[str], None] = print,
    runner: Callable[[Path], Callable] | None = None,
) -> dict:
    """Makes the store that `config` asks for, on a disk, or keeps the one that is there; returns the report.

    `runner` (beam.open_runner) does the work in place of a pool of processes on this machine.

    Nothing lies at `config.store` until the store is whole. Whatever stops this, the next start continues from the
    shards that were whole. Raises BadInput, and leaves nothing, for unusable text, files or vocabulary, and where the
    store is of another corpus or tokenizer; Unfinished where the machine fails, as by a full disk. SIGTERM is
    SystemExit here, once the workers have ended.
    """
    if download.is_there(config.store):
        return keep(config, log)
    if remote.is_address(config.store):
        hint = "prepare one on a disk and copy it there"
        raise BadInput(f"config.store={config.store}: no store is there; {hint}")
    path = locate(config.store)
    sources = corpus.open_sources(config)
    origin.made_from(config)  # looks at a given vocabulary
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


def open_or_refuse(config, *, hashes: bool = False) -> stores.Store:
    """The store at `config.store`; BadInput, key by key, if `config` asks for another corpus or tokenizer."""
    path = download.local(config.store, hashes=config.verify_store)
    store = stores.open_store(path, hashes=hashes)
    there = store.manifest["made_from"]
    if refused := origin.differing(store.path, there, origin.made_from(config)):
        raise BadInput(f"{config.store}: a store made from something else: {refused}")
    return store


def keep(config, log: Callable[[str], None]) -> dict:
    """The report of a finished store, if it is of this config and of text of these names and sizes.

    That text was altered and has kept its size is not seen.
    """
    store = open_or_refuse(config, hashes=config.verify_store)
    try:
        sources = corpus.open_sources(config)
    except BadInput:  # a store outlives its text files
        sources = []
    for source, there in zip(sources, store.manifest["files_read"], strict=False):
        if source.files_read not in ({}, there):  # that of pydocs is known once it is written
            raise BadInput(
                f"{config.store}: made from {there}, but config.corpus.source {source.name!r} names"
                f" {source.files_read} now; prepare into a new directory"
            )
    log(f"store {config.store}: already prepared, from this text as far as names and sizes tell")
    return json.loads((store.path / "report.json").read_text())


def key(config, sources: list[corpus.Source]) -> str:
    """A digest of all that decides the bits of shards and vocabulary, as far as it is cheap to know."""
    code = (path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    known = [source.files_read for source in sources]
    paths = (path for source in sources if source.name != "pydocs" for path in source.paths)
    times, versions = [path.stat().st_mtime_ns for path in paths], [*map(version, DECIDING)]
    text = json.dumps([origin.made_from(config), known, times, versions])
    return hashlib.sha256(b"".join([text.encode(), *code])).hexdigest()[:16]


def build(config, path: Path, sources: list, directory: Path, run: Callable, log: Callable) -> dict:
    """Makes a store in `directory` and renames it to `path`; returns its report and how long it took.

    `run` maps a function over tasks.
    """
    start = time.monotonic()
    tokenizer = saved_vocabulary(config, sources, directory / "vocabulary", run, log)
    log("prepare: the text is read and encoded")
    problems, counts = Counter(), Counter()
    shards = encode(sources, directory, problems, run, log)
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
    state = splits.select(hashes, config.corpus.heldout, config.filter.duplicates, problems)
    table = splits.write(shards, state, sources, store, tokenizer.size)
    np.save(store / stores.HELDOUT_HASHES, hashes[state == splits.HELDOUT])
    counts["copies"] = int((state == splits.COPY).sum())
    tokenizer.save(store / "tokenizer")
    result = report.make(config, store, tokenizer, counts, problems, table)
    finish(config, sources, store, tokenizer, result)
    rename(store, path)
    seconds = time.monotonic() - start
    speed = counts["bytes"] / 1e6 / seconds
    return result | {"seconds": seconds, "megabytes_per_second": speed}


def finish(config, sources: list, directory: Path, tokenizer: Tokenizer, result: dict) -> None:
    """Writes the report, and the manifest last."""
    (directory / "report.json").write_text(json.dumps(result, indent=1) + "\n")
    text = "".join(f"{line}\n" for line in report.describe(result))
    (directory / "report.txt").write_text(text, encoding="utf-8")
    paths = [f"{split}/{array}.npy" for split in stores.SPLITS for array in stores.ARRAYS]
    content = {path: checksums.digest(directory / path) for path in paths}
    made, table = origin.made_from(config), result["sources"]
    identity = json.dumps([made, tokenizer.fingerprint, content, table], sort_keys=True)
    manifest = {
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "made_from": made,
        "files_read": [source.files_read for source in sources],
        "vocabulary": tokenizer.size,
        "special": tokenizer.special,
        "sources": table,
        "splits": {name: result[name] for name in stores.SPLITS},
        "unigram_entropy": result["unigram_entropy"],
    }
    manifests.write(directory, manifest, stores.FORMAT)
