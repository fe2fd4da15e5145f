"""`benchmark` times the program that trains, and needs only a config."""

import json

import jax
import pytest
from kits.malformed_inputs import refused
from kits.saved_batches import World
from kits.small import small_batch, small_config
from kits.traces import traced_steps

from bert_jax.cli import main
from bert_jax.commands import benchmark
from bert_jax.data.vocabulary import expected_vocabulary
from bert_jax.layers import counts
from bert_jax.objectives import base
from bert_jax.parallel import chips
from bert_jax.tasks.text import mlm_batch

TINY = "model.layers=1", "model.width=8", "model.heads=2"


def time(config, steps) -> dict:
    return benchmark.benchmark(config, None, steps, lambda line: None)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


@pytest.mark.slow
def test_the_reported_numbers_are_consistent(tmp_path, monkeypatch):
    """The model has one segment. The store does not exist."""
    monkeypatch.setitem(chips.BY_KIND, "cpu", chips.CARDS["l4"]._replace(flops=1e9))
    keys = "model.type_vocabulary=1", "task.pair_task=none"
    config = small_config(f"store={tmp_path}/store", *keys)
    measured = time(config, steps=3)
    numbers, parameters = measured["phases"]["main"], measured["parameters"]
    vocabulary = expected_vocabulary(config, print)
    objective = base.make(config, vocabulary)
    params = jax.eval_shape(objective.init, jax.random.key(0), small_batch())
    assert parameters == counts.count(params, 200) > measured["body_parameters"]
    assert 0 < numbers["step_seconds"] <= numbers["slowest_seconds"]
    assert numbers["rows_per_second"] == pytest.approx(16 / numbers["step_seconds"])
    # Synthetic rows are full.
    assert numbers["tokens_per_second"] == pytest.approx(16 * 32 / numbers["step_seconds"])
    rows = mlm_batch.shapes(16, 32, 5)
    assert numbers["flops_per_step"] == base.step_flops(config, vocabulary, params, rows)
    achieved = numbers["flops_per_step"] / numbers["step_seconds"]
    assert numbers["utilization"] == pytest.approx(achieved / 8e9)
    assert numbers["peak_bytes"] is None
    # Every device holds the parameters and two moments in float32; activations are small in this model.
    assert 3 * 4 * parameters < numbers["planned_bytes"] < 40 * 3 * 4 * parameters
    assert measured["devices"] == ["cpu"] * 8 and measured["mesh"]["data"] == 8


@pytest.mark.slow
def test_steps_are_timed_one_by_one_after_a_warm_up(tmp_path, monkeypatch):
    """The clock only advances when a step is called: of five calls the first two do not count."""
    advances, now, compile_phase = iter((100, 50, 3, 1, 2)), [0.0], benchmark.compile_phase

    class Slow:
        def __init__(self, program):
            self.program, self.memory_analysis = program, program.memory_analysis

        def __call__(self, *inputs):
            now[0] += next(advances)
            return self.program(*inputs)

    def slow(*arguments):
        initialize, train, seconds = compile_phase(*arguments)
        return initialize, Slow(train), seconds

    monkeypatch.setattr(benchmark, "compile_phase", slow)
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: now[0])
    numbers = time(small_config(f"store={tmp_path}/store", *TINY), steps=3)["phases"]["main"]
    assert numbers["utilization"] is None
    assert (numbers["step_seconds"], numbers["slowest_seconds"]) == (2, 3)
    assert next(advances, None) is None


@pytest.mark.full
def test_every_phase_is_timed_and_traced(world, tmp_path, capsys):
    """Each phase has a directory of traces, which contain only the timed steps."""
    directory = tmp_path / "new/traces"
    options = "--steps", 3, "--profile", directory, "--json", "-"
    assert main(["benchmark", *world.arguments(*options)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert list(values["phases"]) == ["short", "long"]
    first, last = benchmark.WARM_UP, benchmark.WARM_UP + 3
    assert {path.name for path in directory.iterdir()} == {"long", "short"}
    for phase in directory.iterdir():
        assert traced_steps(phase) == [list(range(first, last))]


@pytest.mark.parametrize(
    "options, named",
    [
        (["--phase", "middle"], "--phase middle"),
        (["--config.phases.long.batch=12"], "phases.long.batch=12"),
        (["--config.mesh.tensor=3"], "8 devices"),
    ],
)
def test_bad_input_is_refused(world, tmp_path, monkeypatch, options, named):
    """Nothing is compiled or written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark, "compile_phase", None)
    assert named in refused("benchmark", *world.arguments(*options))
    assert not list(tmp_path.iterdir())
