"""What a run needs, takes and costs on a TPU slice that is not here: its training steps are compiled for it."""

import time
from collections.abc import Callable
from importlib.metadata import version

from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.config import choose_phases
from bert_jax.data import batch_spec, download, store, store_sample
from bert_jax.data.vocabulary import likely_vocabulary
from bert_jax.errors import BadInput
from bert_jax.models import attention
from bert_jax.parallel import chips
from bert_jax.planning import search, slices, topology
from bert_jax.planning.changes import options
from bert_jax.planning.compilation import TooLarge, compile_step
from bert_jax.planning.estimate import FULL, Fill, estimate, parts, total
from bert_jax.runs import metrics
from bert_jax.runs.run_info import step_flops, versions
from bert_jax.storage import remote

ALL = "all"  # kinds of chips


def plan(
    config: ConfigDict,
    name: str,
    prices: dict[str, float],
    phase: str | None = None,
    tell: Callable[[str], None] = print,
) -> dict:
    """What DESIGN promises of `plan --json`: of every phase, or of one, on the slice of this name.

    prices: of a chip for an hour, by the kind of chip; of all others under "". Of a phase that does not fit: `fits`,
    false, `bytes_per_chip`, `reason` and `advice`; then nothing is there of hours and cost. Raises BadInput before
    anything is compiled.
    """
    one = topology.find(name)
    price = prices.get(one.kind, prices.get(""))
    if prices and price is None:
        raise BadInput(f"--price: of {', '.join(prices)}, none of {one.kind}")
    config, chosen, vocabulary, fills = prepare(config, phase, tell)
    mesh = build.make_mesh(config, chosen, topology.devices(one))
    design = build.design(config, mesh, vocabulary)
    phases = {}
    for part in chosen:
        started = time.monotonic()
        try:
            step = compile_step(config, design, part, tell)
        except TooLarge as error:
            phases[part.name] = {
                "fits": False,
                "bytes_per_chip": round(error.used * one.chip.devices),
                "reason": str(error),
                "advice": advise(config, one, part, vocabulary, tell),
            }
            continue
        flops = step_flops(config, vocabulary.size, part)
        phases[part.name] = {
            **estimate(one, mesh, part, parts(one, mesh, step), flops, fills[part.name]),
            "attention": attention.resolve(config, part, mesh),
            "seconds_planning": time.monotonic() - started,
        }
    is_whole = not any("reason" in values for values in phases.values())
    return {
        "topology": one.name,
        "accelerator_type": one.accelerator_type,
        "chips": one.chips,
        "hosts": len({device.process_index for device in mesh.devices.flat}),
        "mesh": dict(mesh.shape),
        "dtype": config.dtype,
        **metrics.parameters(design.shapes.params, vocabulary.size),
        "memory_per_chip": one.chip.memory,
        "fits": all(values["fits"] for values in phases.values()),
        "phases": phases,
        "versions": compiled_by(),
        **(total(one, list(phases.values()), price) if is_whole else {}),
    }


def check_fits(values: dict) -> None:
    """Raises BadInput where a phase of a plan does not fit."""
    reasons = [
        f"config.phases.{name} on {values['topology']}: {phase['reason']}; {phase['advice']}"
        for name, phase in values["phases"].items()
        if "reason" in phase
    ]
    if reasons:
        raise BadInput("; ".join(reasons))


def plan_all(config, name: str, prices: dict[str, float], phase: str | None, tell) -> dict:
    """The slices of every kind of chip, or of the one of this name, by hours; see slices.py."""
    kinds = list(chips.CHIPS) if name == ALL else [name]
    config, chosen, vocabulary, fills = prepare(config, phase, tell)
    found = slices.table(config, kinds, chosen, vocabulary, fills, prices, tell)
    return found | {"versions": compiled_by()}


def plan_search(config, name: str, phase: str | None, tell) -> dict:
    """Ways to train on a slice, the fastest first; see search.py."""
    one = topology.find(name)
    config, chosen, vocabulary, fills = prepare(config, phase, tell)
    devices = topology.devices(one)
    build.make_mesh(config, chosen, devices)  # raises what is wrong with the config as it is
    tables = {
        part.name: search.search(config, one, devices, part, vocabulary, fills[part.name], tell)
        for part in chosen
    }
    return {
        "topology": one.name,
        "memory_per_chip": one.chip.memory,
        "phases": tables,
        "versions": compiled_by(),
    }


def compiled_by() -> dict[str, str]:
    return versions() | {"libtpu": version("libtpu")}


def prepare(config: ConfigDict, phase: str | None, tell) -> tuple:
    """(the config as a TPU would resolve it, its phases or the one, its likely vocabulary, {phase: its fill})."""
    config = for_tpu(config)
    chosen = choose_phases(config, phase)
    return config, chosen, likely_vocabulary(config, tell), expected_fills(config, chosen)


def for_tpu(config: ConfigDict) -> ConfigDict:
    config = config.copy_and_resolve_references()
    if config.dtype == "auto":
        config.dtype = "bfloat16"
    return config


def expected_fills(config, phases: list) -> dict[str, Fill]:
    """By the name of a phase; of a sample of the store, where one is on this disk. Raises BadInput where it is
    damaged."""
    fills = {phase.name: FULL for phase in phases}
    if remote.is_address(config.store) or not download.is_there(config.store):
        return fills
    opened = store.open_store(config.store)
    for name in fills:
        rows = store_sample.survey_rows(opened, batch_spec.spec(config, name))
        fills[name] = Fill(rows.fill, config.store)
    return fills


def advise(config, one: topology.Slice, phase, vocabulary, tell) -> str:
    """What makes a step fit that does not, and what it is like then."""
    found = search.find_fit(config, one, topology.devices(one), phase, vocabulary, tell)
    if not found:
        return "no micro-batches, remat or fsdp that were tried make it fit"
    return (
        f"{options(found['settings'])} fits: {found['bytes_per_chip'] / chips.GIB:.2f} GiB a chip,"
        f" {found['seconds_per_step']:.3g} s a step"
    )
