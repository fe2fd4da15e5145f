"""Builds a token store from documents, in parallel and in bounded memory; resumes from finished shards after a stop.

    sources -> blocks of text -> shards of ids and hashes -> splits without copies -> store

This process reads the text; a process pool or Apache Beam encodes it into shards. The store is bitwise the same for any
number of workers, with the pool or Beam, and after any interruptions. Memory holds a few blocks of text per worker, the
sample for training a vocabulary, and 64 bytes per document.
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

from bert_jax.checks import require
from bert_jax.data import download, origin, vocabulary
from bert_jax.data import store as stores
from bert_jax.data.preparation import corpus, encode, pool, report, splits
from bert_jax.data.preparation.workspace import resolve_path, workspace, workspace_root
from bert_jax.errors import BadInput, Unfinished
from bert_jax.registry import part_of
from bert_jax.storage import atomic, checksums, remote

# The bits of a store depend on the code of this package and on the versions of these libraries.
DECIDING = ("numpy", "tokenizers", "sentencepiece")


def prepare(config, log: Callable = print, runner: Callable | None = None) -> dict:
    """Builds the store of `config` in a local directory, or keeps an existing one; returns the report.

    log: function of a line.
    runner: the result of beam.open_runner, used in place of a process pool on this machine.

    The store appears at `config.store` only when it is complete. After an interruption, the next call resumes from the
    finished shards. Raises BadInput, and leaves no files, if the text, files or vocabulary are unusable; also if the
    existing store is of another corpus or tokenizer. Raises Unfinished if the system fails, for example with a full
    disk. SIGTERM raises SystemExit after the workers have ended.
    """
    if download.exists(config.store):
        return read_report(config, log)
    require(
        not remote.is_address(config.store),
        "store",
        config,
        "no store found; prepare a local store and copy it to this address",
    )
    path = resolve_path(config.store)
    hint = f"run again to resume from {workspace_root(path)}"
    sources = corpus.open_sources(config)
    origin.made_from(config)  # refuses an unusable vocabulary file before any work
    try:
        workers = pool.workers(config.corpus.workers)
        with atomic.terminable(), tempfile.TemporaryDirectory() as scratch, workers as run_locally:
            sources = [corpus.materialize(source, Path(scratch), run_locally) for source in sources]
            text = {
                "names": [source.name for source in sources],
                "identities": [source.identify(run_locally) for source in sources],
            }
            with workspace(path, workspace_key(config, text), log) as directory:
                run = runner(directory / "tasks") if runner else run_locally
                return build(config, path, sources, text, directory, run, log)
    except KeyboardInterrupt:
        if workspace_root(path).exists():
            log(f"prepare: interrupted; {hint}")
        raise
    except (OSError, BrokenProcessPool, Unfinished) as error:
        raise Unfinished(
            f"config.store={config.store!r}: not finished ({error}); {hint}"
        ) from error


def open_matching(config, hashes: bool = False) -> tuple[stores.Store, str]:
    """Returns the store at `config.store`, and a line if its text has changed since; else ''.

    Raises BadInput if it was built from another source, or with other values of the keys, which it names.
    """
    path = download.local(config.store, hashes=config.verify_store)
    store = stores.open_store(path, hashes=hashes)
    origin.check(config, path, store.manifest["made_from"], origin.made_from(config))
    if not origin.text_has_changed(config, path, store.manifest["text"]):
        return store, ""
    return store, (
        f"config.corpus.source={config.corpus.source}: changed since {config.store} was prepared"
    )


def read_report(config, log: Callable) -> dict:
    """Returns the report of a finished store. Raises BadInput if it is of another config or of other text."""
    store, changed = open_matching(config, config.verify_store)
    if changed:
        raise BadInput(f"{changed}; to use it, name another config.store")
    log(f"prepare: {config.store} is already prepared")
    return json.loads((store.path / "report.json").read_text())


def workspace_key(config, text: dict) -> str:
    """Returns a digest of everything that decides the bits of shards and vocabulary: config, text, code, libraries."""
    identity = [origin.made_from(config), text["identities"], list(map(version, DECIDING))]
    digest = hashlib.sha256(json.dumps(identity).encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def build(
    config, path: Path, sources: list, text: dict, directory: Path, run: Callable, log: Callable
) -> dict:
    """Builds a store in the workspace `directory` and renames it to `path`; returns its report with the time it took.

    path: of the store, on the same file system as the workspace.
    text: names and identities of the sources, as in the manifest.
    run: maps a function over tasks, in order.
    log: function of a line.
    """
    start = time.monotonic()
    if config.corpus.heldout_by == "end":
        log("prepare: reading the text to find its end, which is held out")
    sources = corpus.set_heldout_starts(config, sources, run)
    tokenizer = vocabulary.load_or_train(config, sources, directory / "vocabulary", run, log)
    log("prepare: reading and encoding the text")
    problems = Counter()
    shards, size = encode.encode(sources, directory, problems, run, log)
    counts = Counter()
    # Of the documents: hashes, whether they are held out by their position, and the numbers of their sources.
    parts = [(np.zeros((0, 2), "<u8"), np.zeros(0, bool), np.zeros(0, np.uint16))]
    for shard in shards:
        header = shard.header()
        counts.update(header["counts"])
        problems.update(header["problems"])
        shard_hashes, shard_places = shard.read("text_hashes", "is_heldout")
        shard_sources = np.full(len(shard_places), shard.source, np.uint16)
        parts.append((shard_hashes, shard_places, shard_sources))
    hashes, by_position, numbers = map(np.concatenate, zip(*parts, strict=True))
    log("prepare: writing the splits")
    store = directory / "store"
    shutil.rmtree(store, ignore_errors=True)  # left by an interrupted run
    store.mkdir()
    state = splits.assign(config, hashes, by_position, config.filter.duplicates, problems, numbers)
    least = splits.least_documents(config)
    table = splits.write(shards, state, sources, store, tokenizer.size, least)
    np.save(store / stores.HELDOUT_HASHES, hashes[state == splits.HELDOUT])
    stored = sum(sum(source["documents"].values()) for source in table)
    counts["copies"] = counts["documents_read"] - counts["empty"] - stored
    result = report.build(config, store, tokenizer, counts, problems, table)
    result["unusable_files"] = [str(path) for source in sources for path in sorted(source.refused)]
    finish(config, text, store, tokenizer, result)
    # Raises BadInput for too little text.
    part_of(config, "task").make(config, stores.open_store(store))
    atomic.rename(store, path)
    seconds = time.monotonic() - start  # of this start
    return result | {"seconds": seconds, "megabytes_per_second": size / 1e6 / seconds}


def finish(config, text: dict, directory: Path, tokenizer, result: dict) -> None:
    """Writes the report and completes the store."""
    (directory / "report.json").write_text(json.dumps(result, indent=1) + "\n")
    # The content alone decides the fingerprint: another spelling of the source gives the same.
    content = {}
    for split in stores.SPLITS:
        for array in stores.ARRAYS:
            name = f"{split}/{array}.npy"
            content[name] = checksums.digest(directory / name)
    properties = {
        "sources": result["sources"],
        "unigram_entropy": result["unigram_entropy"],
        "text": text,
        "splits": {name: result[name] for name in stores.SPLITS},
    }
    stores.finish(directory, origin.made_from(config), content, tokenizer, properties)
