"""Saved batches: the exact batches of some steps, and all that a run needs of the store they come from. No TensorFlow.

    manifest.json             format, counts, SHA-256 of every file and of itself; the sections below
    tokenizer/                the store's, as bert_jax.tokenizers.tokenizer reads it
    train/000000000000.npy    records[N, B]: N batches, from the step on that the file is called by
    heldout/PHASE/...         the same of the held-out rows, in batches of the phase's size; the last is filled up

A record is a row: a field for each array of the batch contract, in the narrowest type that holds all values of the
file exactly, so a host reads its rows of a batch in one go. The manifest keeps

    config       {key: value} that these batches depend on, see `dependencies`
    made_from, fingerprint, vocabulary, special, unigram_entropy    the store's
    steps        [A, B]: the steps A to B - 1 of the run, whatever their phases
    phases       {name: {train: table, heldout: table}}
    files        {name: {bytes, sha256}}

where a table is {arrays: {name: [type, shape of a row]}, batch: rows of a batch, blocks: [{file, first, batches,
sha256}]}; a block says which step of the run (or which held-out batch) it begins with, how many batches it has, and the
digest of each (batch.digest). A table of held-out rows adds `rows`, and `all`: whether the store has no more of them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax import config as configs
from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.storage import checksums, regular_files
from bert_jax.tokenizers.special_tokens import SPECIAL

FORMAT = 1
TYPES = ("int32", "float32")  # of the batch contract


class Saved(NamedTuple):
    path: Path
    manifest: dict

    @property
    def steps(self) -> range:
        return range(*self.manifest["steps"])


def dependencies(config, first: int, last: int) -> dict:
    """{key: value} of all that decides the batches of steps first..last-1 of a config, beside the store.

    The steps of a phase decide only where the following ones begin.
    """
    chosen = {"seed": config.seed, "corpus.weights": config.corpus.weights}
    chosen |= {f"objective.{key}": value for key, value in config.objective.items()}
    del chosen["objective.name"]  # what is learnt from them
    for phase in configs.phases(config):
        if phase.first >= last:
            break
        keys = {f"phases.{phase.name}.{key}": v for key, v in config.phases[phase.name].items()}
        steps = keys.pop(f"phases.{phase.name}.steps")
        if phase.last < last:
            chosen[f"phases.{phase.name}.steps"] = steps
        if phase.last > first:
            chosen |= keys
    return chosen | {"phase_order": order(config, last)}


def order(config, last: int) -> tuple:
    """The phases that begin before a step."""
    return tuple(phase.name for phase in configs.phases(config) if phase.first < last)


def open_saved(directory: str | Path, *, hashes: bool = False) -> Saved:
    """Saved batches after checking their files against the manifest: sizes always, contents if `hashes`."""
    directory = Path(directory)
    manifest = read_manifest(directory)
    for name, expected in manifest["files"].items():
        text = checksums.check_file(directory, name, expected, hashes)
        if text:
            raise BadInput(f"{directory / name}: {text}")
    return Saved(directory, manifest)


def read_manifest(directory: Path) -> dict:
    path = directory / "manifest.json"
    try:
        manifest = json.loads(regular_files.text(path))
    except (FileNotFoundError, NotADirectoryError):
        hint = "bert-jax inspect --steps A:B --save DIR writes them"
        raise BadInput(f"{directory}: no saved batches (no manifest.json); {hint}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable manifest ({error})") from None
    try:
        whole = manifest["format"] == FORMAT and is_sound(manifest)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise BadInput(f"{path}: not of saved batches of format {FORMAT}")
    if manifest["digest"] != checksums.manifest_digest(manifest):
        raise BadInput(f"{path}: altered since it was written (SHA-256 differs from its digest)")
    return manifest


def is_sound(manifest: dict) -> bool:
    """Whether all is there that is relied on, and every batch once and in order; raises what it likes."""
    first, last = manifest["steps"]
    named = {"made_from", "fingerprint", "vocabulary", "special", "unigram_entropy", "digest"}
    files = manifest["files"]
    sound = named <= set(manifest) and 0 <= first < last and "phase_order" in manifest["config"]
    sound &= all(isinstance(file["bytes"], int) and "sha256" in file for file in files.values())
    sound &= manifest["special"].keys() == SPECIAL.keys() and manifest["vocabulary"] > 0
    train = []
    for phase in manifest["phases"].values():
        heldout = phase["heldout"]
        for table in (phase["train"], heldout):
            blocks = table["blocks"]
            sound &= table["batch"] > 0 and all(block["file"] in files for block in blocks)
            sound &= all(len(block["sha256"]) == block["batches"] > 0 for block in blocks)
            sound &= all(kind in TYPES for kind, _ in table["arrays"].values())
            sound &= batch.shapes(1, 1, 1).keys() <= table["arrays"].keys()
        count = -(-heldout["rows"] // heldout["batch"])
        sound &= heldout["all"] in (True, False) and follow(heldout["blocks"], 0, count)
        train += phase["train"]["blocks"]
    return sound and follow(sorted(train, key=lambda block: block["first"]), first, last)


def follow(blocks: list[dict], first: int, last: int) -> bool:
    for block in blocks:
        if block["first"] != first:
            return False
        first += block["batches"]
    return first == last


def check_positions(positions, size: int) -> np.ndarray:
    """The rows of a batch to read, in this order; all by default."""
    return np.arange(size) if positions is None else np.asarray(positions, np.int64)


def train(
    saved: Saved, name: str, first: int, last: int, positions=None
) -> Iterator[dict[str, np.ndarray]]:
    """The batches of steps first..last-1 of the run, all of phase `name`: the rows at `positions` of each.

    Raises BadInput where they are not held.
    """
    table = held_phase(saved, name)["train"]
    if not (first in saved.steps and last - 1 in saved.steps):
        raise BadInput(f"{saved.path}: {describe_steps(saved)}, not {first} to {last - 1}")
    positions = check_positions(positions, table["batch"])
    reader = Reader(saved, table)
    for step in range(first, last):
        yield reader.read(np.full(len(positions), step), positions)


class Heldout:
    """Batches of `size` rows of the first `rows` held-out rows of a phase, those at `positions` of each; the same at
    every iteration.

    Rows that only fill the last batch have masked_weights and pair_weights 0. Raises BadInput where there are fewer.
    """

    def __init__(self, saved: Saved, name: str, size: int, rows: int, positions=None):
        self.saved, self.table = saved, held_phase(saved, name)["heldout"]
        there = self.table["rows"]
        if rows > there and not self.table["all"]:
            raise BadInput(
                f"config.evaluate.rows={rows}: {saved.path} holds {there} held-out rows of phase {name}"
            )
        self.rows, self.size = min(rows, there), size
        self.positions = check_positions(positions, size)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        reader = Reader(self.saved, self.table)
        for begin in range(0, self.rows, self.size):
            numbers = begin + self.positions
            places = divmod(numbers % self.rows, self.table["batch"])
            arrays = reader.read(*places)
            weights = (numbers < self.rows).astype(np.float32)[:, None]
            for name in ("masked_weights", "pair_weights"):
                arrays[name] *= weights
            yield arrays | {"rows": self.positions.astype(np.int32)}


def held_phase(saved: Saved, name: str) -> dict:
    phases = saved.manifest["phases"]
    if name not in phases:
        raise BadInput(f"{saved.path}: holds no batches of phase {name}; {describe_steps(saved)}")
    return phases[name]


def describe_steps(saved: Saved) -> str:
    first, last = saved.steps.start, saved.steps.stop - 1
    return f"holds step {first}" if first == last else f"holds the steps {first} to {last}"


class Reader:
    """Rows of the files of a table; the file that was read last stays mapped."""

    def __init__(self, saved: Saved, table: dict):
        self.saved, self.table = saved, table
        self.firsts = np.array([block["first"] for block in table["blocks"]])
        self.number, self.records = None, None

    def read(self, batches: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Rows int64[b] of the batches int64[b], by their numbers, as the batch contract has them."""
        result = {
            name: np.empty((len(rows), *shape), kind)
            for name, (kind, shape) in self.table["arrays"].items()
        }
        numbers = np.searchsorted(self.firsts, batches, side="right") - 1
        for number in np.unique(numbers):
            part = np.flatnonzero(numbers == number)
            chosen = self.open(number)[batches[part] - self.firsts[number], rows[part]]
            self.check(chosen["tokens"], number)
            for name, array in result.items():
                array[part] = chosen[name]
        return result

    def open(self, number: int) -> np.ndarray:
        if number != self.number:
            self.number, self.records = number, self.map(self.table["blocks"][number])
        return self.records

    def map(self, block: dict) -> np.ndarray:
        """records[N, B] of a file, if it holds what the manifest says."""
        path = self.saved.path / block["file"]
        try:
            records = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # what reads its header raises what it likes
            raise BadInput(f"{path}: cannot be read ({error})") from None
        fields = records.dtype.fields or {}
        shapes = {name: list(field[0].shape) for name, field in fields.items()}
        expected = {name: shape for name, (_, shape) in self.table["arrays"].items()}
        if records.shape != (block["batches"], self.table["batch"]) or shapes != expected:
            raise BadInput(f"{path}: not the batches that the manifest says")
        return records

    def check(self, tokens: np.ndarray, number: int) -> None:
        """Against a file that was altered, where nobody looks at hashes."""
        path = self.saved.path / self.table["blocks"][number]["file"]
        vocabulary = self.saved.manifest["vocabulary"]
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocabulary:
            raise BadInput(f"{path}: an id is beyond the vocabulary of {vocabulary} pieces")
