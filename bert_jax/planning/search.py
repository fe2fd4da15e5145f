"""Searches for settings on one target that make a step fit, or make it fast. Each is compiled."""

import math
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation
from bert_jax.planning.compilation import CompilerFailed, Job
from bert_jax.planning.estimate import estimate
from bert_jax.planning.topology import Target
from bert_jax.runs.out_of_memory import TooLarge

MICRO_BATCHES = 2, 4, 8, 16
REMATS = "none", "attention", "full"


def settings(config: ConfigDict, target: Target) -> list[dict]:
    """Returns changes to a config as {key: value}, cheap ones first.

    They are: none, more micro-batches, more rematerialization, the state sharded over other numbers of devices,
    combinations, and on GPUs the other implementation of attention.
    """
    micro_batches = [
        {"train.tokens_per_device": 0, "train.micro_batches": count} for count in MICRO_BATCHES
    ]
    stronger = REMATS[REMATS.index(config.train.remat) + 1 :]
    remats = [{"train.remat": remat} for remat in stronger]
    tensor = config.mesh.tensor
    # A power of two, since the vocabulary is padded to a multiple of one.
    largest = math.gcd(
        config.model.get("width", 1),
        target.chips * target.chip.devices // tensor,
        meshes.VOCABULARY_MULTIPLE // tensor,
    )
    now = meshes.fsdp_size(config, target.devices())
    sizes = [2**power for power in range(largest.bit_length())]
    sharded = [{"mesh.data": -1, "mesh.fsdp": size} for size in sizes if size != now]
    combined = [micro_batches[-1] | {"train.remat": REMATS[-1]}]
    if now < largest:
        combined = [sharded[-1] | change for change in (*remats, *combined)]
    attention = []
    if "attention" in config.model:
        names = [name for name in target.attentions if name != config.model.attention]
        attention = [{"model.attention": name} for name in names]
    return [{}, *attention, *micro_batches, *remats, *sharded, *combined]


def options(changes: dict[str, object]) -> str:
    """Returns the changes as command-line options."""
    return " ".join(f"--config.{key}={value}" for key, value in changes.items())


def search(job: Job, target: Target, phase) -> list[dict]:
    """Returns a row for each setting: those that fit sorted by seconds, then the others by bytes.

    Raises CompilerFailed if the compiler fails on all of them.
    """

    def order(row: dict) -> tuple:
        key = "seconds_per_step" if row["fits"] else "bytes_per_chip"
        return not row["fits"], row.get(key, math.inf)

    changes = settings(job.config, target)
    table = sorted(attempts(job, target, phase, changes), key=order)
    if "bytes_per_chip" not in table[0]:
        raise CompilerFailed(f"config.phases.{phase.name}: {table[0]['reason']}")
    return table


def attempts(job: Job, target: Target, phase, changes: list[dict]) -> Iterator[dict]:
    """Yields a row for each change: the numbers of the compiled phase, or the reason why there are none."""
    for change in changes:
        job.log(f"plan: trying {options(change) or 'the config unchanged'}")
        config = job.config.copy_and_resolve_references()
        config.update_from_flattened_dict(change)
        yield {
            "settings": change,
            **attempt(job._replace(config=config, phases=[phase]), target, phase),
        }


def attempt(job: Job, target: Target, phase) -> dict:
    """Returns the row of a job of one phase."""
    try:
        mesh = compilation.make_mesh(job, target)
        step = compilation.compile_step(job, target, mesh, phase)
    except TooLarge as error:
        return does_not_fit(target, error)
    except (BadInput, CompilerFailed) as error:
        return {"fits": False, "reason": str(error)}
    return estimate(job, target, mesh, phase, step)


def does_not_fit(target: Target, error: TooLarge) -> dict:
    """Returns the row of a step that does not fit."""
    return {"fits": False, "bytes_per_chip": error.used * target.chip.devices, "reason": str(error)}
