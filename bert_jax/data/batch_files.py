"""Saved batches: the exact batches of some steps, and all that a run needs of the store they come from.

    manifest.json             format, SHA-256 of every file and of itself; the sections below
    tokenizer/                the store's, as bert_jax.tokenizers.tokenizer reads it
    PHASE/000000000000.npz    N batches, from the step on that the file is called by: arrays [N, B, ...]
    PHASE/heldout.npz         the held-out rows, filled up to whole batches: arrays [R, ...]

Arrays are those of the batch contract. Reading needs no TensorFlow. The manifest keeps

    config       {key: value} that these batches depend on: what the store was made from, and `dependencies`
    fingerprint, vocabulary, special, unigram_entropy    the store's
    steps        [A, B]: the steps A to B - 1 of the run, whatever their phases
    phases       {name: {first: step, batches: N of a file, rows: R, all: whether the store has no more held-out rows}}
    files        {name: {bytes, sha256}}
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import batch, origin
from bert_jax.data import manifest as manifests
from bert_jax.errors import BadInput
from bert_jax.storage.atomic import check_free, new_directory
from bert_jax.tokenizers.special_tokens import Vocabulary

FORMAT = 5
BLOCK = 1 << 26  # bytes of the batches of a file, as they are in memory


def dependencies(config: ConfigDict) -> dict:
    """{key: value} of all in a config that decides the batches beside the store."""
    last = f"phases.{config.phase_order[-1]}.steps"  # there may be more of them than are read
    decide, values = r"seed|phase_order|objective\.(?!name$).+|phases\..+", configs.flatten(config)
    return {key: values[key] for key in values if re.fullmatch(decide, key) and key != last}


# --- Writing --------------------------------------------------------------------------------------


def check(config, first: int, last: int, directory: Path) -> None:
    """Refuses what cannot be saved, before anything is computed or written."""
    total = configs.total_steps(config)
    if not 0 <= first < last <= total:
        raise BadInput(
            f"--steps {first}:{last}: expected A:B for the steps A to B - 1 of 0 to {total - 1}"
        )
    check_free(directory, "--save")


def save(feed, first: int, last: int, directory: Path, tell: Callable) -> dict:
    """Writes the batches of steps first..last-1 of a StoreFeed, of whatever phases, and the held-out rows of those
    phases; says what it wrote. Memory does not grow with the number of steps."""
    with new_directory(directory, "--save") as place:
        shutil.copytree(feed.path / "tokenizer", place / "tokenizer")
        phases = {}
        for phase in configs.phases(feed.config):
            begin, end = max(first, phase.first), min(last, phase.last)
            if begin < end:
                phases[phase.name] = save_phase(feed, phase, begin, end, place / phase.name, tell)
        manifest = {
            "config": feed.store.manifest["made_from"] | dependencies(feed.config),
            "fingerprint": feed.fingerprint,
            "vocabulary": feed.store.manifest["vocabulary"],
            "special": feed.store.manifest["special"],
            "unigram_entropy": feed.unigram_entropy,
            "steps": [first, last],
            "phases": phases,
        }
        manifest = manifests.write(place, manifest, FORMAT)
    return {
        "saved": str(directory),
        "steps": [first, last],
        "heldout_rows": {name: phase["rows"] for name, phase in phases.items()},
        "fingerprint": feed.fingerprint,
        "bytes": sum(file["bytes"] for file in manifest["files"].values()),
    }


def save_phase(feed, phase, first: int, last: int, place: Path, tell: Callable) -> dict:
    """Writes the batches of steps first..last-1 of a phase; returns the entry of the phase in the manifest."""
    place.mkdir()
    shapes = batch.shapes(phase.batch, phase.length, phase.max_predictions, phase.max_packed)
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes.values())
    number, block = max(1, int(BLOCK // size)), []
    for step, arrays in enumerate(feed.train(phase, first, last), first):
        block.append(arrays)
        if len(block) == number or step == last - 1:
            write(place / f"{step + 1 - len(block):012d}.npz", block, np.stack)
            tell(f"inspect: phase {phase.name}, saved up to step {step} of {last - 1}")
            block = []
    heldout = feed.heldout(phase, phase.batch)
    write(place / "heldout.npz", list(heldout), np.concatenate)
    is_all = heldout.rows < feed.config.evaluate.rows
    return {"first": first, "batches": number, "rows": heldout.rows, "all": is_all}


def write(path: Path, batches: list[dict], join: Callable) -> None:
    np.savez_compressed(path, **{name: join([one[name] for one in batches]) for name in batches[0]})


# --- Reading --------------------------------------------------------------------------------------


def read_manifest(directory: Path) -> dict:
    hint = "not saved batches; bert-jax inspect --steps A:B --save DIR writes them"
    return manifests.read(directory, FORMAT, "steps", hint)


class SavedFeed:
    """Batches that `save` has written; see feed.py."""

    key = "batches"

    def __init__(self, config: ConfigDict, directory: Path):
        """Raises BadInput where a file has another size than the manifest says, or these are not the batches of the
        config."""
        self.config, self.path, self.manifest = config, directory, read_manifest(directory)
        manifests.refuse_altered(directory, self.manifest, hashes=False)
        self.steps = range(*self.manifest["steps"])
        self.fingerprint = self.manifest["fingerprint"]
        self.unigram_entropy = self.manifest["unigram_entropy"]
        self.vocabulary = Vocabulary(self.manifest["vocabulary"], **self.manifest["special"])
        self.check_unchanged = manifests.watch(directory, self.manifest)
        asked = origin.made_from(config) | dependencies(config)
        if refused := origin.differing(directory, self.manifest["config"], asked):
            raise BadInput(f"config.batches={self.path}: batches of another config: {refused}")

    def check(self, step: int) -> None:
        """Raises BadInput where not all is there that a run needs from `step` on."""
        total = configs.total_steps(self.config)
        first = min(step, total - 1)
        self.check_steps(first, total)
        for phase in configs.phases(self.config):
            if phase.last > first:
                self.heldout(phase, phase.batch)

    def check_steps(self, first: int, last: int) -> None:
        if not (first in self.steps and last - 1 in self.steps):
            raise BadInput(
                f"config.batches={self.path}: {self.describe()}, not {first} to {last - 1}"
            )

    def check_hashes(self) -> None:
        manifests.refuse_altered(self.path, self.manifest, hashes=True)

    def describe(self) -> str:
        return f"holds the steps {self.steps.start} to {self.steps.stop - 1}"

    def train(self, phase, first: int, last: int, positions=None) -> Iterator[dict]:
        """The batches of steps first..last-1 of the run, all of `phase`: the rows at `positions` of each."""
        self.check_steps(first, last)
        held, arrays = self.manifest["phases"][phase.name], None
        chosen = slice(None) if positions is None else np.asarray(positions, np.int64)
        for step in range(first, last):
            place = (step - held["first"]) % held["batches"]
            if arrays is None or not place:
                arrays = self.read(f"{phase.name}/{step - place:012d}.npz")
            yield {key: array[place][chosen] for key, array in arrays.items()}

    def heldout(self, phase, size: int, positions=None) -> "Heldout":
        held = self.manifest["phases"].get(phase.name, {"rows": 0, "all": False})
        rows = self.config.evaluate.rows
        if rows > held["rows"] and not held["all"]:
            raise BadInput(
                f"config.evaluate.rows={rows}: {self.path} holds {held['rows']} held-out rows of phase {phase.name}"
            )
        positions = np.arange(size) if positions is None else np.asarray(positions, np.int64)
        arrays = self.read(f"{phase.name}/heldout.npz")
        return Heldout(arrays, min(rows, held["rows"]), size, positions)

    def read(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a file, which NumPy checks by CRC-32. Raises BadInput where they are not what was written."""
        path = self.path / name
        try:
            with open(path, "rb") as opened, np.load(opened) as file:
                return {key: file[key] for key in batch.shapes(1, 1, 1)}
        except Exception as error:  # of NumPy and zipfile, which raise what they like
            raise BadInput(f"{path}: cannot be read ({error})") from None


class Heldout(NamedTuple):
    """Batches of `size` rows of the first `rows` ones of held-out arrays, those at `positions` of each; the same at
    every iteration. Rows that only fill the last batch have masked_weights and pair_weights 0."""

    arrays: dict
    rows: int
    size: int
    positions: np.ndarray

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for begin in range(0, self.rows, self.size):
            numbers = begin + self.positions
            arrays = {name: array[numbers % self.rows] for name, array in self.arrays.items()}
            arrays["rows"] = self.positions.astype(np.int32)
            yield batch.fill(arrays, numbers < self.rows)
