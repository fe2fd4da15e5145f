"""Mesh shapes, micro-batches and remat on one slice, by seconds a step: each sketched from short stacks of layers."""

from collections.abc import Callable, Iterator

from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.errors import BadInput
from bert_jax.parallel.mesh import make_mesh
from bert_jax.planning.changes import changed
from bert_jax.planning.compilation import Failed, TooLarge
from bert_jax.planning.estimate import Fill, estimate
from bert_jax.planning.sketch import SPARE, is_whole, sketch
from bert_jax.runs.run_info import step_flops

MICRO_BATCHES = 1, 2, 4, 8
REMATS = "none", "attention", "full"
LONGEST = 1000  # characters of reasons


def search(
    config: ConfigDict, one, devices, phase, vocabulary, fill: Fill, tell: Callable
) -> list[dict]:
    """Rows of a table, the fastest that fits first: mesh shapes, then ways to train on the best of them.

    Where no shape fits, the best is the one that needs the fewest bytes. Raises Failed where the compiler fails on all.
    """
    table = []

    def attempt(settings: dict) -> None:
        if settings in [row["settings"] for row in table]:
            return
        tell(f"plan: trying {describe(settings)}")
        table.append(try_one(config, one, devices, phase, vocabulary, fill, settings, tell))
        table.sort(key=order)

    for shape in meshes(len(devices)):
        attempt(shape | train(config))
    best = {key: value for key, value in table[0]["settings"].items() if key.startswith("mesh.")}
    for way in ways():
        attempt(best | way)
    if not any("bytes_per_chip" in row for row in table):
        reasons = dict.fromkeys(row["reason"] for row in table)
        raise Failed(f"config.phases.{phase.name}: {'; '.join(reasons)}"[:LONGEST])
    return table


def check(config: ConfigDict, devices: list, phase) -> None:
    """Raises BadInput where the config, as it trains, cannot be computed on a mesh of any shape: why not."""
    reasons = {}
    for shape in meshes(len(devices)):
        try:
            build.make_mesh(changed(config, shape), [phase], devices)
        except BadInput as error:
            reasons[str(error)] = None
        else:
            return
    raise BadInput("; ".join(reasons)[:LONGEST])


def order(row: dict) -> tuple:
    """What fits by seconds, what does not by bytes: the fewer, the likelier a way to train mends it."""
    key = "seconds_per_step" if row["fits"] else "bytes_per_chip"
    return not row["fits"], row.get(key, float("inf"))


def train(config) -> dict:
    """How the config trains."""
    names = ("micro_batches", "rows_per_chip", "remat")
    return {f"train.{name}": config.train[name] for name in names}


def meshes(devices: int) -> Iterator[dict]:
    """Every fsdp and tensor of powers of two; data takes what they leave."""
    powers = [2**power for power in range(devices.bit_length()) if devices % 2**power == 0]
    for tensor in powers:
        for fsdp in powers:
            if devices % (fsdp * tensor) == 0:
                yield {"mesh.data": -1, "mesh.fsdp": fsdp, "mesh.tensor": tensor}


def ways() -> Iterator[dict]:
    for remat in REMATS:
        for count in MICRO_BATCHES:
            yield {
                "train.micro_batches": count,
                "train.rows_per_chip": 0,
                "train.remat": remat,
            }


def try_one(config, one, devices, phase, vocabulary, fill, settings: dict, tell) -> dict:
    trial = changed(config, settings)
    try:
        found = sketch(one, trial, devices, phase, vocabulary, tell)
    except TooLarge as error:
        held = round(error.used * one.chip.devices)
        return {"settings": settings, "fits": False, "bytes_per_chip": held, "reason": str(error)}
    except (BadInput, Failed) as error:
        return {"settings": settings, "fits": False, "reason": str(error)}
    flops = step_flops(config, vocabulary.size, phase)
    mesh = make_mesh(trial.mesh, devices)
    spare = 1.0 if is_whole(config) else SPARE
    return {"settings": settings, **estimate(one, mesh, phase, found, flops, fill, spare)}


def describe(settings: dict) -> str:
    """As options of a command, without those that say nothing."""
    silent = {"mesh.data": -1, "train.rows_per_chip": 0}
    return " ".join(f"{key}={value}" for key, value in settings.items() if silent.get(key) != value)
