"""Saved batches: the exact batches of some steps, and all that a run needs of the store they come from.

    manifest.json             format, SHA-256 of every file and of itself; the sections below
    tokenizer/                the store's, as bert_jax.tokenizers.tokenizer reads it
    PHASE/000000000000.npz    N batches, from the step on that the file is called by: arrays [N, B, ...]
    PHASE/heldout.npz         the held-out rows, filled up to whole batches: arrays [R, ...]

Arrays are those of the batch contract. Reading needs no TensorFlow. The manifest keeps

    config       {key: value} that these batches depend on, see `dependencies`
    made_from, fingerprint, vocabulary, special, unigram_entropy    the store's
    steps        [A, B]: the steps A to B - 1 of the run, whatever their phases
    phases       {name: {first: step, batches: N of a file, rows: R, all: whether the store has no more held-out rows}}
    files        {name: {bytes, sha256}}
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax import config as configs
from bert_jax.data import batch
from bert_jax.data import manifest as manifests
from bert_jax.errors import BadInput
from bert_jax.storage.atomic import free, whole

FORMAT = 2
BLOCK = 1 << 26  # bytes of the batches of a file, as they are in memory
LOG_EVERY = 10  # seconds


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


# --- Writing --------------------------------------------------------------------------------------


def check(config, first: int, last: int, directory: Path) -> None:
    """Refuses what cannot be saved, before anything is computed or written."""
    total = configs.total_steps(config)
    if not 0 <= first < last <= total:
        raise BadInput(
            f"--steps {first}:{last}: expected A:B for the steps A to B - 1 of 0 to {total - 1}"
        )
    free(directory, "--save")


def save(feed, first: int, last: int, directory: Path, tell: Callable) -> dict:
    """Writes the batches of steps first..last-1 of a StoreFeed, of whatever phases, and the held-out rows of those
    phases; says what it wrote. Memory does not grow with the number of steps."""
    check(feed.config, first, last, directory)
    with whole(directory, "--save") as place:
        shutil.copytree(feed.path / "tokenizer", place / "tokenizer")
        phases = {}
        for phase in configs.phases(feed.config):
            begin, end = max(first, phase.first), min(last, phase.last)
            if begin < end:
                phases[phase.name] = save_phase(feed, phase, begin, end, place / phase.name, tell)
        manifest = {
            "config": dependencies(feed.config, first, last),
            "made_from": feed.store.manifest["made_from"],
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
    shapes = batch.shapes(phase.batch, phase.length, phase.predictions, phase.sequences)
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes.values())
    number, block, told = max(1, int(BLOCK // size)), [], time.monotonic()
    for step, arrays in enumerate(feed.train(phase, first, last), first):
        block.append(arrays)
        if len(block) == number or step == last - 1:
            write(place / f"{step + 1 - len(block):012d}.npz", block, np.stack)
            block = []
        if time.monotonic() - told > LOG_EVERY:
            told = time.monotonic()
            tell(f"inspect: step {step}, {first} to {last - 1} of phase {phase.name} are saved")
    heldout = feed.heldout(phase, phase.batch)
    write(place / "heldout.npz", list(heldout), np.concatenate)
    is_all = heldout.rows < feed.config.evaluate.rows
    return {"first": first, "batches": number, "rows": heldout.rows, "all": is_all}


def write(path: Path, batches: list[dict], join: Callable) -> None:
    np.savez_compressed(path, **{name: join([one[name] for one in batches]) for name in batches[0]})


# --- Reading --------------------------------------------------------------------------------------


def open_saved(directory: str | Path, *, hashes: bool = False) -> Saved:
    """Saved batches after checking their files against the manifest: sizes always, contents if `hashes`."""
    directory = Path(directory)
    manifest = read_manifest(directory)
    manifests.refuse_altered(directory, manifest, hashes)
    return Saved(directory, manifest)


def read_manifest(directory: Path) -> dict:
    hint = "not saved batches; bert-jax inspect --steps A:B --save DIR writes them"
    return manifests.read(directory, FORMAT, "steps", hint)


def read(saved: Saved, name: str) -> dict[str, np.ndarray]:
    """The arrays of a file. Raises BadInput where they are not what was written, or none of a batch."""
    path = saved.path / name
    try:
        with open(path, "rb") as opened, np.load(opened) as file:
            arrays = {key: file[key] for key in batch.shapes(1, 1, 1)}
    except Exception as error:  # of NumPy and zipfile, which raise what they like
        raise BadInput(f"{path}: cannot be read ({error})") from None
    vocabulary = saved.manifest["vocabulary"]
    if not 0 <= arrays["tokens"].min() <= arrays["tokens"].max() < vocabulary:
        raise BadInput(f"{path}: an id is beyond the vocabulary of {vocabulary} pieces")
    return arrays


def train(
    saved: Saved, name: str, first: int, last: int, positions=None
) -> Iterator[dict[str, np.ndarray]]:
    """The batches of steps first..last-1 of the run, all of phase `name`: the rows at `positions` of each.

    Raises BadInput where they are not held.
    """
    phase = held_phase(saved, name)
    if not (first in saved.steps and last - 1 in saved.steps):
        raise BadInput(f"{saved.path}: {describe_steps(saved)}, not {first} to {last - 1}")
    begin, number, arrays = phase["first"], phase["batches"], None
    chosen = slice(None) if positions is None else np.asarray(positions, np.int64)
    for step in range(first, last):
        place = (step - begin) % number
        if arrays is None or not place:
            arrays = read(saved, f"{name}/{step - place:012d}.npz")
        yield {key: array[place][chosen] for key, array in arrays.items()}


class Heldout:
    """Batches of `size` rows of the first `rows` held-out rows of a phase, those at `positions` of each; the same at
    every iteration.

    Rows that only fill the last batch have masked_weights and pair_weights 0. Raises BadInput where there are fewer.
    """

    def __init__(self, saved: Saved, name: str, size: int, rows: int, positions=None):
        phase = held_phase(saved, name)
        if rows > phase["rows"] and not phase["all"]:
            raise BadInput(
                f"config.evaluate.rows={rows}: {saved.path} holds {phase['rows']} held-out rows of phase {name}"
            )
        self.rows, self.size = min(rows, phase["rows"]), size
        self.arrays = read(saved, f"{name}/heldout.npz")
        self.positions = np.arange(size) if positions is None else np.asarray(positions, np.int64)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for begin in range(0, self.rows, self.size):
            numbers = begin + self.positions
            arrays = {name: array[numbers % self.rows] for name, array in self.arrays.items()}
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
