"""Phases that differ only in the number of micro-batches, or in nothing that a program has, are compiled once."""

import pytest
from kits.gpus import needs_compiler
from kits.slices import needs_libtpu

from bert_jax import config as configs
from bert_jax.planning import compilation, hlo, plan, topology

MICRO_BATCHES = 1, 3, 6, 12, 12
ROWS = 8  # of a micro-batch
LENGTH = 64
CHIPS = 4


@pytest.fixture
def compiled(monkeypatch):
    """The names of the phases that are compiled."""
    names = []
    compile_here = compilation.compile_here

    def compile_in_subprocess(job, target, phase):
        names.append(phase.name)
        return compile_here(job, target, phase)

    monkeypatch.setattr(compilation, "compile_in_subprocess", compile_in_subprocess)
    return names


def make_job(tmp_path, devices: int):
    """Returns a job without a cache, whose phases have MICRO_BATCHES; the last one also has another mask rate."""
    keys = ["compilation_cache=", f"store={tmp_path}/none"]
    keys += ["model.layers=1", "model.attention=xla"]
    keys.append(f"train.tokens_per_device={ROWS * LENGTH}")
    config = configs.load("modern_demo", keys)
    main = config.phases.main
    config.phases = type(config)()
    for number, count in enumerate(MICRO_BATCHES):
        phase = main.copy_and_resolve_references()
        phase.update(batch=ROWS * count * devices, steps=10 + number)
        config.phases[f"phase{number}"] = phase
    phase.mask_rate = 0.2
    config.phase_order = tuple(config.phases)
    return plan.make_job(config, None, lambda text: None)


@needs_libtpu
@pytest.mark.parametrize("loops", [1, 2])
def test_the_loop_over_micro_batches_is_repeated(tmp_path, monkeypatch, loops):
    """If the program has two loops that run as often, each number of micro-batches is compiled."""
    names = []

    def compile_in_subprocess(job, target, phase):
        names.append(phase.name)
        count = phase.batch // ROWS // CHIPS
        loop = ["loop", count, [["compute", 100]]]
        return compilation.Step(hlo.Memory(10, 7, 6, 24), [["compute", 9], *[loop] * loops])

    monkeypatch.setattr(compilation, "compile_in_subprocess", compile_in_subprocess)
    job = make_job(tmp_path, CHIPS)
    values = plan.plan(job, "v5e:2x2", None)["phases"]
    assert len(names) == (2 if loops == 1 else 4)
    for phase, count in zip(values.values(), MICRO_BATCHES, strict=True):
        assert phase["cycles"] == 9 + 100 * loops * count
        added = phase["bytes_of_arguments"] - 10
        assert (added > 0) == (count > compilation.FEW and loops == 1)
        assert phase["bytes_of_temporaries"] == 7 + added
        assert phase["bytes_per_chip"] == 24 + 2 * added


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rtx4090:1", marks=needs_compiler),
        pytest.param("v5e:2x2", marks=needs_libtpu),
    ],
)
def test_the_numbers_are_those_of_separate_compilations(tmp_path, compiled, monkeypatch, name):
    target = topology.find(name)
    job = make_job(tmp_path, target.chips)
    shared = plan.plan(job, name, None)["phases"]
    assert compiled == ["phase0", "phase1"]
    monkeypatch.setattr(compilation, "FEW", max(MICRO_BATCHES))
    separate = plan.plan(job, name, None)["phases"]
    assert compiled[2:] == ["phase2", "phase3"]
    for phase, values in separate.items():
        for key in ("cycles", "seconds_per_step", "seconds_per_step_none_hidden", "bytes_per_chip"):
            assert shared[phase][key] == pytest.approx(values[key], rel=0.01), (phase, key)
        for kind, count in values["sent_per_chip"].items():
            assert shared[phase]["sent_per_chip"][kind] == pytest.approx(count, rel=0.01)
