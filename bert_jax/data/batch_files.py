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

FORMAT = 10
# Keys of the store's manifest that are copied.
COPIED = ("text", "fingerprint", "vocabulary", "special", "unigram_entropy")
BLOCK = 1 << 26  # bytes of the batches in a file, before compression


def dependencies(config: ConfigDict) -> dict:
    """Returns {key: value} of the config keys that, together with the store, decide the batches."""
    # The last phase may be shorter or longer: a run need not read all saved steps.
    last = f"phases.{config.phase_order[-1]}.steps"
    rates = "schedule|learning_rate|warmup|decay|end"
    pattern = rf"seed|phase_order|task\..+|phases\.[^.]+\.(?!({rates})$).+"
    keys = configs.flatten(config)
    keys.pop(last)
    return {
        key: value
        for key, value in keys.items()
        if re.fullmatch(pattern, key) and key not in configs.DECODING
    }


# --- Writing --------------------------------------------------------------------------------------


def save(feed, first: int, last: int, directory: Path, log: Callable) -> dict:
    """Writes the batches of steps first..last-1 of a StoreFeed, and the rows that their phases are evaluated on.

    Returns the manifest without its table of files, and the number of bytes. Memory does not grow with the steps.
    """
    with new_directory(directory, "--save") as target:
        shutil.copytree(feed.path / "tokenizer", target / "tokenizer")
        phases = {}
        for phase in configs.phases(feed.config):
            steps = range(max(first, phase.first), min(last, phase.stop))
            if steps:
                phases[phase.name] = save_phase(feed, phase, steps, target / phase.name, log)
        of_store = feed.store.manifest
        manifest = {
            "config": dependencies(feed.config) | of_store["made_from"],
            **{key: of_store.get(key) for key in COPIED},
            "steps": [first, last],
            "phases": phases,
        }
        files = manifests.write(target, manifest, FORMAT)["files"]
    size = sum(file["bytes"] for file in files.values())
    return {"saved": str(directory), "bytes": size, **manifest}


def save_phase(feed, phase, steps: range, target: Path, log: Callable) -> dict:
    """Writes the batches of these steps of a phase; returns the phase's entry in the manifest."""
    target.mkdir()
    shapes = feed.dataset.shapes(phase, phase.batch)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes.values())
    number = max(1, BLOCK // size)
    batches = feed.train(phase, steps.start, steps.stop)
    for begin in steps[::number]:
        write(target / f"{begin:012d}.npz", [*itertools.islice(batches, number)], np.stack)
        step = min(begin + number, steps.stop) - 1
        log(f"inspect: phase {phase.name}, saved up to step {step} of {steps[-1]}")
    splits = {}
    for split in feed.splits:
        rows = feed.evaluation(phase, split, phase.batch)
        write(target / f"{split}.npz", list(rows), np.concatenate)
        has_all = rows.rows < feed.config.evaluate.rows
        splits[split] = {"rows": rows.rows, "all": has_all}
    return {
        "first": steps.start,
        "batches": number,
        "splits": splits,
    }


def write(path: Path, batches: list[dict], join: Callable) -> None:
    """Writes an .npz file of batches, joined by np.stack or np.concatenate."""
    arrays = {name: join([batch[name] for batch in batches]) for name in batches[0]}
    np.savez_compressed(path, **arrays)


# --- Reading --------------------------------------------------------------------------------------


def read_manifest(directory: Path) -> dict:
    """Reads the manifest of saved batches. Raises BadInput if it is missing, damaged or of another format."""
    hint = "save batches with bert-jax inspect --steps A:B --save DIR"
    return manifests.read(directory, FORMAT, "steps", hint)


class SavedFeed:
    """A feed of the batches that `save` wrote; tasks/feed.py describes the interface."""

    key = "batches"
    score = None
    review = None

    def __init__(
        self, config: ConfigDict, directory: Path, splits: tuple[str, ...], made_from: dict
    ):
        """Raises BadInput if the size of a file differs from the manifest, or if the batches are of another config.

        made_from: the config keys that decide the content of their store.
        """
        manifest = read_manifest(directory)
        manifests.verify_files(directory, manifest, hashes=False)
        self.config = config
        self.path = directory
        self.splits = splits
        self.manifest = manifest
        self.steps = range(*manifest["steps"])
        self.fingerprint = manifest["fingerprint"]
        self.unigram_entropy = manifest["unigram_entropy"]
        self.vocabulary = Vocabulary(manifest["vocabulary"], **manifest["special"])
        requested = dependencies(config) | made_from
        changed = origin.differences(config, directory, manifest["config"], requested)
        if changed:
            raise BadInput(f"config.batches={directory}: saved by another config: {changed}")
        if manifest["text"]:  # not of examples
            origin.text_has_changed(config, directory, manifest["text"])  # refuses another text

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
        if first not in self.steps or last - 1 not in self.steps:
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
        rows = batch.positions_or_all(positions, phase.batch)
        arrays = None
        for step in range(first, last):
            number = (step - saved["first"]) % saved["batches"]
            if arrays is None or number == 0:
                arrays = self.read(f"{phase.name}/{step - number:012d}.npz")
            yield {name: array[number][rows] for name, array in arrays.items()}

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
        rows = min(rows, saved["rows"])
        positions = batch.positions_or_all(positions, size)
        arrays = self.read(f"{phase.name}/{split}.npz")
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
