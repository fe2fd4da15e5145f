"""Settings on one slice, each compiled whole: those that make a step fit, and those that make it fast."""

from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.errors import BadInput
from bert_jax.planning import compilation, topology
from bert_jax.planning.compilation import Failed, Job
from bert_jax.planning.estimate import estimate
from bert_jax.runs.out_of_memory import TooLarge

MICRO_BATCHES = 2, 4, 8, 16
REMATS = "none", "attention", "full"


def settings(config: ConfigDict, one: topology.Slice) -> list[dict]:
    """Changes to a config as {key: value}, cheap ones first: none, fewer rows at once, what the backward pass computes
    again, and the state over more chips."""
    parted = [{"train.rows_per_device": 0, "train.micro_batches": count} for count in MICRO_BATCHES]
    remats = [{"train.remat": remat} for remat in REMATS[REMATS.index(config.train.remat) + 1 :]]
    devices = one.chips * one.chip.devices
    sizes = [2**power for power in range(1, devices.bit_length()) if devices % 2**power == 0]
    split = [{"mesh.data": -1, "mesh.fsdp": size} for size in sizes]
    least = parted[-1] | {"train.remat": REMATS[-1]}
    both = [widest | more for widest in split[-1:] for more in (*remats, least)]
    return [{}, *parted, *remats, *split, *both]


def options(changes: dict[str, object]) -> str:
    """As options of a command."""
    return " ".join(f"--config.{key}={value}" for key, value in changes.items())


def search(job: Job, one: topology.Slice, phase) -> list[dict]:
    """A row for each of the settings: what fits by seconds, then what does not by bytes. Raises Failed where the
    compiler fails on all."""

    def order(row: dict) -> tuple:
        key = "seconds_per_step" if row["fits"] else "bytes_per_chip"
        return not row["fits"], row.get(key, float("inf"))

    table = sorted(attempts(job, one, phase, settings(job.config, one)), key=order)
    if "bytes_per_chip" not in table[0]:
        raise Failed(f"config.phases.{phase.name}: {table[0]['reason']}")
    return table


def attempts(job: Job, one: topology.Slice, phase, changes: list[dict]) -> Iterator[dict]:
    """A row for each of the changes: the numbers of the phase as it is compiled, or the reason why there are none."""
    for changed in changes:
        job.tell(f"plan: trying {options(changed) or 'the config as it is'}")
        config = job.config.copy_and_resolve_references()
        config.update_from_flattened_dict(changed)
        yield {"settings": changed, **attempt(job._replace(config=config, phases=[phase]), one)}


def attempt(job: Job, one: topology.Slice) -> dict:
    """Of a job of one phase."""
    try:
        mesh, (phase,) = compilation.make_mesh(job, one), job.phases
        step = compilation.compile_step(job, one, mesh, phase)
    except TooLarge as error:
        return does_not_fit(one, error)
    except (BadInput, Failed) as error:
        return {"fits": False, "reason": str(error)}
    return estimate(job, one, mesh, phase, step)


def does_not_fit(one: topology.Slice, error: TooLarge) -> dict:
    held = round(error.used * one.chip.devices)
    return {"fits": False, "bytes_per_chip": held, "reason": str(error)}
