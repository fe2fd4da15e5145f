"""Settings on one slice, each compiled whole: those that make a step fit, and those that make it fast."""

from collections.abc import Callable, Iterator
from itertools import islice

from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.errors import BadInput
from bert_jax.planning import compilation
from bert_jax.planning.changes import changed, options
from bert_jax.planning.compilation import Failed, TooLarge
from bert_jax.planning.estimate import FULL, Fill, estimate, parts
from bert_jax.runs.run_info import step_flops

MICRO_BATCHES = 2, 4, 8, 16
REMATS = "none", "attention", "full"
LONGEST = 1000  # characters of reasons


def settings(config: ConfigDict, devices: int) -> Iterator[dict]:
    """Changes to a config, cheap ones first: none, fewer rows at once, what the backward pass computes again, and the
    state over more chips."""
    yield {}
    parted = [{"train.rows_per_chip": 0, "train.micro_batches": count} for count in MICRO_BATCHES]
    yield from parted
    remats = [{"train.remat": remat} for remat in REMATS[REMATS.index(config.train.remat) + 1 :]]
    yield from remats
    sizes = [2**power for power in range(1, devices.bit_length()) if devices % 2**power == 0]
    split = [{"mesh.data": -1, "mesh.fsdp": size} for size in sizes]
    yield from split
    for mesh in split[-1:]:
        yield from (mesh | remat for remat in remats)
        yield mesh | parted[-1] | {"train.remat": REMATS[-1]}


def search(
    config: ConfigDict, one, devices: list, phase, vocabulary, fill: Fill, tell: Callable
) -> list[dict]:
    """A row for each of the settings, the fastest that fits first.

    Raises Failed where the compiler fails on all.
    """
    table = []
    for changes in settings(config, len(devices)):
        tell(f"plan: trying {options(changes) or 'the config as it is'}")
        table.append(try_one(config, one, devices, phase, vocabulary, fill, changes, tell))
    if not any("bytes_per_chip" in row for row in table):
        reasons = dict.fromkeys(row["reason"] for row in table)
        raise Failed(f"config.phases.{phase.name}: {'; '.join(reasons)}"[:LONGEST])
    return sorted(table, key=order)


def find_fit(config: ConfigDict, one, devices: list, phase, vocabulary, tell) -> dict | None:
    """The row of the first setting that makes a step fit which does not as it is."""
    for changes in islice(settings(config, len(devices)), 1, None):
        tell(f"plan: does not fit; trying {options(changes)}")
        row = try_one(config, one, devices, phase, vocabulary, FULL, changes, tell)
        if row["fits"]:
            return row
    return None


def order(row: dict) -> tuple:
    """What fits by seconds, what does not by bytes."""
    key = "seconds_per_step" if row["fits"] else "bytes_per_chip"
    return not row["fits"], row.get(key, float("inf"))


def try_one(config, one, devices, phase, vocabulary, fill, changes: dict, tell) -> dict:
    trial = changed(config, changes)
    try:
        mesh = build.make_mesh(trial, [phase], devices)
        design = build.design(trial, mesh, vocabulary)
        step = compilation.compile_step(trial, design, phase, tell)
    except TooLarge as error:
        held = round(error.used * one.chip.devices)
        return {"settings": changes, "fits": False, "bytes_per_chip": held, "reason": str(error)}
    except (BadInput, Failed) as error:
        return {"settings": changes, "fits": False, "reason": str(error)}
    flops = step_flops(config, vocabulary.size, phase)
    found = estimate(one, mesh, phase, parts(one, mesh, step), flops, fill)
    return {"settings": changes, **found}
