"""Saved batches: the exact batches of a range of steps, with everything a run needs from their store.

    manifest.json             format, SHA-256 of every file and of itself; the sections below
    tokenizer/                that of the store, as bert_jax.tokenizers.tokenizer reads it
    PHASE/000000000000.npz    N batches, the first of the step in the file's name: arrays [N, B, ...]
    PHASE/SPLIT.npz           the rows of a split that is evaluated, padded to whole batches: arrays [R, ...]

The arrays are those of the batch contract. Reading them needs no TensorFlow. The manifest holds

    config       {key: value} that decide these batches: those of the store, and `dependencies`
    text, fingerprint, vocabulary, special, unigram_entropy    those of the store
    steps        [A, B]: the steps A to B - 1 of the run, in any phases
    phases       {name: {first: step, batches: N per file, splits: {name: {rows: R, all: whether it has no more}}}}
    files        {name: {bytes, sha256}}
"""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import batch, origin
from bert_jax.data import manifest as manifests
from bert_jax.errors import BadInput
from bert_jax.storage.atomic import new_directory
from bert_jax.tokenizers.special_tokens import Vocabulary

FORMAT = 8
# Keys of the store's manifest that are copied.
COPIED = ("text", "fingerprint", "vocabulary", "special", "unigram_entropy")
BLOCK = 1 << 26  # bytes of the batches in a file, before compression


def dependencies(config: ConfigDict) -> dict:
    """Returns {key: value} of the config keys that, together with the store, decide the batches."""
    # The last phase may be shorter or longer: a run need not read all saved steps.
    last = f"phases.{config.phase_order[-1]}.steps"
    decide = r"seed|phase_order|objective\.(?!name$).+|task\..+|phases\..+"
    values = configs.flatten(config)
    return {key: values[key] for key in values if re.fullmatch(decide, key) and key != last}


# --- Writing --------------------------------------------------------------------------------------


def save(feed, first: int, last: int, directory: Path, log: Callable) -> dict:
    """Writes the batches of steps first..last-1 of a StoreFeed, and the rows that their phases are evaluated on.

    Returns the manifest without its table of files, and the number of bytes. Memory does not grow with the steps.
    """
    with new_directory(directory, "--save") as target:
        shutil.copytree(feed.path / "tokenizer", target / "tokenizer")
        phases = {}
        for phase in configs.phases(feed.config):
            begin = max(first, phase.first)
            stop = min(last, phase.stop)
            if begin < stop:
                phases[phase.name] = save_phase(feed, phase, begin, stop, target / phase.name, log)
        manifest = {
            "config": feed.store.manifest["made_from"] | dependencies(feed.config),
            **{key: feed.store.manifest[key] for key in COPIED},
            "steps": [first, last],
            "phases": phases,
        }
        files = manifests.write(target, manifest, FORMAT)["files"]
    size = sum(file["bytes"] for file in files.values())
    return {"saved": str(directory), "bytes": size, **manifest}


def save_phase(feed, phase, first: int, last: int, target: Path, log: Callable) -> dict:
    """Writes the batches of steps first..last-1 of a phase; returns the phase's entry in the manifest."""
    target.mkdir()
    shapes = feed.dataset.shapes(phase, phase.batch)
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes.values())
    number = max(1, int(BLOCK // size))
    batches = feed.train(phase, first, last)
    for begin in range(first, last, number):
        write(target / f"{begin:012d}.npz", [*itertools.islice(batches, number)], np.stack)
        step = min(begin + number, last) - 1
        log(f"inspect: phase {phase.name}, saved up to step {step} of {last - 1}")
    splits = {}
    for split in feed.splits:
        rows = feed.evaluation(phase, split, phase.batch)
        write(target / f"{split}.npz", list(rows), np.concatenate)
        splits[split] = {"rows": rows.rows, "all": rows.rows < feed.config.evaluate.rows}
    return {"first": first, "batches": number, "splits": splits}


def write(path: Path, parts: list[dict], join: Callable) -> None:
    """Writes an .npz file of batches, joined by np.stack or np.concatenate."""
    np.savez_compressed(path, **{name: join([part[name] for part in parts]) for name in parts[0]})


# --- Reading --------------------------------------------------------------------------------------


def read_manifest(directory: Path) -> dict:
    """Reads the manifest of saved batches. Raises BadInput if it is missing, damaged or of another format."""
    hint = "save batches with bert-jax inspect --steps A:B --save DIR"
    return manifests.read(directory, FORMAT, "steps", hint)


class SavedFeed:
    """A feed of the batches that `save` wrote; feed.py describes the interface."""

    key = "batches"
    score = None

    def __init__(self, config: ConfigDict, directory: Path, splits: tuple[str, ...]):
        """Raises BadInput if the size of a file differs from the manifest, or if the batches are of another config."""
        self.config = config
        self.path = directory
        self.splits = splits
        self.manifest = read_manifest(directory)
        manifests.verify_files(directory, self.manifest, hashes=False)
        self.steps = range(*self.manifest["steps"])
        self.fingerprint = self.manifest["fingerprint"]
        self.unigram_entropy = self.manifest["unigram_entropy"]
        self.vocabulary = Vocabulary(self.manifest["vocabulary"], **self.manifest["special"])
        requested = origin.made_from(config) | dependencies(config)
        changed = origin.differences(directory, self.manifest["config"], requested)
        if changed:
            raise BadInput(f"config.batches={self.path}: saved by another config: {changed}")
        origin.text_has_changed(config, directory, self.manifest["text"])  # refuses another text

    def check(self, step: int) -> None:
        """Raises BadInput unless all batches that a run needs from `step` on are saved."""
        total = configs.total_steps(self.config)
        first = min(step, total - 1)
        self.check_steps(first, total)
        for phase in configs.phases(self.config):
            if phase.stop > first:
                for split in self.splits:
                    self.evaluation(phase, split, phase.batch)

    def check_steps(self, first: int, last: int) -> None:
        """Raises BadInput unless steps first..last-1 are saved."""
        if not (first in self.steps and last - 1 in self.steps):
            steps = f"{self.describe()}, not {first} to {last - 1}"
            raise BadInput(f"config.batches={self.path}: {steps}")

    def check_hashes(self) -> None:
        manifests.verify_files(self.path, self.manifest, hashes=True)

    def describe(self) -> str:
        return f"holds the steps {self.steps.start} to {self.steps.stop - 1}"

    def train(self, phase, first: int, last: int, positions=None) -> Iterator[dict]:
        """Yields the batches of steps first..last-1 of the run, all in `phase`, with the rows at `positions`."""
        self.check_steps(first, last)
        saved = self.manifest["phases"][phase.name]
        arrays = None
        if positions is None:
            positions = np.arange(phase.batch)
        for step in range(first, last):
            offset = (step - saved["first"]) % saved["batches"]
            if arrays is None or offset == 0:
                arrays = self.read(f"{phase.name}/{step - offset:012d}.npz")
            yield {key: array[offset][positions] for key, array in arrays.items()}

    def evaluation(self, phase, split: str, size: int, positions=None) -> list[dict]:
        """Returns batches of `size` rows of a split, with the rows at `positions` of each.

        Rows that pad the last batch have row_weights 0.
        """
        splits = self.manifest["phases"].get(phase.name, {}).get("splits", {})
        saved = splits.get(split, {"rows": 0, "all": False})
        rows = self.config.evaluate.rows
        if rows > saved["rows"] and not saved["all"]:
            reason = f"{self.path} has only {saved['rows']} {split} rows of phase {phase.name}"
            raise BadInput(f"config.evaluate.rows={rows}: {reason}")
        positions = np.arange(size) if positions is None else np.asarray(positions)
        arrays = self.read(f"{phase.name}/{split}.npz")
        rows = min(rows, saved["rows"])
        batches = []
        for begin in range(0, rows, size):
            numbers = begin + positions
            chosen = {name: array[numbers % rows] for name, array in arrays.items()}
            batches.append(batch.weighted(chosen, positions, numbers < rows))
        return batches

    def read(self, name: str) -> dict[str, np.ndarray]:
        """Reads the arrays of a file. Raises BadInput if it is damaged; NumPy verifies the CRC-32 of each array."""
        path = self.path / name
        try:
            with open(path, "rb") as opened, np.load(opened) as file:
                return dict(file)
        except Exception as error:  # NumPy and zipfile raise many types
            raise BadInput(f"{path}: cannot be read ({error})") from None
