"""Writes the batches of some steps, and what a run needs beside them, as data/batch_files.py reads them."""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from bert_jax import config as configs
from bert_jax.data import batch, batch_files
from bert_jax.data.feed import StoreFeed
from bert_jax.errors import BadInput
from bert_jax.storage import checksums
from bert_jax.storage.atomic import free, whole

BLOCK = 1 << 26  # bytes of the batches of a file, as they are in memory
PATIENCE = 10  # seconds between two lines that tell how far it is


def check(config, first: int, last: int, directory: Path) -> None:
    """Refuses what cannot be saved, before anything is computed or written."""
    total = configs.total_steps(config)
    if not 0 <= first < last <= total:
        raise BadInput(
            f"--steps {first}:{last}: expected A:B for the steps A to B - 1 of 0 to {total - 1}"
        )
    free(directory, "--save")


def save(feed: StoreFeed, first: int, last: int, directory: Path, tell: Callable) -> dict:
    """Writes the batches of steps first..last-1, of whatever phases, and held-out batches of those phases; says what
    it wrote. Memory does not grow with their number."""
    config, started = feed.config, time.monotonic()
    check(config, first, last, directory)
    tell = patient(tell)
    with whole(directory, "--save") as place:
        shutil.copytree(feed.path / "tokenizer", place / "tokenizer")
        phases = {}
        for phase in configs.phases(config):
            begin, end = max(first, phase.first), min(last, phase.last)
            if begin < end:
                phases[phase.name] = save_phase(feed, phase, begin, end, place, tell)
        manifest = {
            "format": batch_files.FORMAT,
            "config": batch_files.dependencies(config, first, last),
            "made_from": feed.store.manifest["made_from"],
            "fingerprint": feed.fingerprint,
            "vocabulary": feed.store.manifest["vocabulary"],
            "special": feed.store.manifest["special"],
            "unigram_entropy": feed.unigram_entropy,
            "steps": [first, last],
            "phases": phases,
            "files": checksums.file_table(place),
        }
        manifest = json.loads(json.dumps(manifest))  # what is read is what the digest is of
        manifest["digest"] = checksums.manifest_digest(manifest)
        (place / "manifest.json").write_text(checksums.manifest_text(manifest))
    return {
        "saved": str(directory),
        "steps": [first, last],
        "phases": list(phases),
        "heldout_rows": {name: phase["heldout"]["rows"] for name, phase in phases.items()},
        "fingerprint": feed.fingerprint,
        "digest": manifest["digest"],
        "bytes": sum(file["bytes"] for file in manifest["files"].values()),
        "seconds": time.monotonic() - started,
    }


def describe(values: dict) -> str:
    first, last = values["steps"]
    rows = ", ".join(f"{name} {number}" for name, number in values["heldout_rows"].items())
    return (
        f"{values['saved']}: steps {first} to {last - 1}, held-out rows: {rows}; {values['bytes'] / 1e6:,.1f} MB in"
        f" {values['seconds']:.1f} s\nto train on them: --config.batches={values['saved']}"
    )


def patient(tell: Callable) -> Callable:
    """Tells the newest of many lines, one in PATIENCE seconds."""
    told = time.monotonic()

    def tell_now_and_then(line: str) -> None:
        nonlocal told
        if time.monotonic() - told > PATIENCE:
            told = time.monotonic()
            tell(line)

    return tell_now_and_then


def save_phase(feed: StoreFeed, phase, first: int, last: int, place: Path, tell) -> dict:
    """The tables of a phase whose steps first..last-1 are wanted, once they are written."""

    def told(batches: Iterable[dict]) -> Iterator[dict]:
        for step, arrays in enumerate(batches, first):
            tell(f"inspect: step {step}, {first} to {last - 1} of phase {phase.name} are saved")
            yield arrays

    train = write_table(told(feed.train(phase, first, last)), first, place, "train")
    rows = feed.heldout(phase, phase.batch)
    heldout = write_table(rows, 0, place, f"heldout/{phase.name}")
    asked = feed.config.evaluate.rows
    return {"train": train, "heldout": heldout | {"rows": rows.rows, "all": rows.rows < asked}}


def write_table(batches: Iterable[dict], first: int, place: Path, folder: str) -> dict:
    """Writes batches, numbered from `first` on, in files of about BLOCK bytes each; the table of them."""
    (place / folder).mkdir(parents=True, exist_ok=True)
    table = {"blocks": []}
    for block in in_blocks(batches):
        name = f"{folder}/{first:012d}.npy"
        write_array(place / name, pack(block))
        digests = [batch.digest(arrays) for arrays in block]
        table["arrays"] = {
            key: [str(array.dtype), list(array.shape[1:])] for key, array in block[0].items()
        }
        table["batch"] = len(block[0]["rows"])
        entry = {"file": name, "first": first, "batches": len(block), "sha256": digests}
        table["blocks"].append(entry)
        first += len(block)
    return table


def write_array(path: Path, array: np.ndarray) -> None:
    """np.save, but that a disk which is full before the last 4 KB is an error: np.save does not notice."""
    header = np.lib.format.header_data_from_array_1_0(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.reshape(-1).view(np.uint8).data)


def in_blocks(batches: Iterable[dict]) -> Iterator[list[dict]]:
    """Lists of batches that make up about BLOCK bytes."""
    block = []
    for arrays in batches:
        block.append(arrays)
        if len(block) * sum(array.nbytes for array in arrays.values()) >= BLOCK:
            yield block
            block = []
    if block:
        yield block


def pack(block: list[dict]) -> np.ndarray:
    """records[N, B] of N batches, each field in the narrowest type that holds it."""
    kinds = [
        (name, narrowest([arrays[name] for arrays in block]), array.shape[1:])
        for name, array in block[0].items()
    ]
    records = np.empty((len(block), len(block[0]["rows"])), kinds)
    for number, arrays in enumerate(block):
        for name, array in arrays.items():
            records[name][number] = array
    return records


def narrowest(arrays: list[np.ndarray]) -> np.dtype:
    """The narrowest type that holds the arrays bit for bit: an unsigned one, or their own."""
    own = arrays[0].dtype
    for kind in (np.uint8, np.uint16):
        if all(holds(kind, array) for array in arrays):
            return np.dtype(kind)
    return own


def holds(kind, array: np.ndarray) -> bool:
    """Whether a type has every value of an array; of floating-point numbers only counts are looked for."""
    if array.size == 0:
        return True
    if not (array.min() >= 0 and array.max() <= np.iinfo(kind).max):
        return False  # NaN is neither
    # A fraction would be cut off, and a zero with a sign lose it.
    exact = array.dtype.kind in "iu"
    return exact or array.astype(kind).astype(array.dtype).tobytes() == array.tobytes()
