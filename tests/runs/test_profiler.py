"""Traces of chosen steps: which are in them, who writes them, and that nothing else changes."""

import jax
import pytest
from jax.profiler import start_trace, stop_trace
from kits import running
from kits.running import assert_same_bits, lines, load, params
from kits.traces import traced_steps

from bert_jax import train
from bert_jax.runs import timing
from bert_jax.runs.profiler import Traces


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return running.train(tmp_path_factory.mktemp("world"))


def test_the_chosen_steps_and_no_others(world, tmp_path, capsys):
    settings, undisturbed = world
    assert not (undisturbed / "traces").exists()
    run, chosen = tmp_path / "run", load(settings, **{"profile.steps": (12, 14)})
    assert train.pretrain(chosen, run) == 0
    assert traced_steps(run / "traces") == [[12, 13]]
    assert f"trace of steps 12 to 13: {run}/traces" in capsys.readouterr().out
    assert_same_bits(params(run), params(undisturbed))

    def numbers(workdir):
        return [{key: line[key] for key in line.keys() - timing.TIMES} for line in lines(workdir)]

    assert numbers(run) == numbers(undisturbed)
    # A run that goes on after them, and to more steps, writes no other.
    more = load(settings, **{"profile.steps": (12, 14), "phases.main.steps": 25})
    assert train.pretrain(more, run) == 0
    assert traced_steps(run / "traces") == [[12, 13]]


def test_a_trace_that_cannot_be_written_is_not_told_as_made(tmp_path, monkeypatch):
    def full():
        raise OSError("no space left")

    monkeypatch.setattr(jax.profiler, "start_trace", lambda _: None)
    monkeypatch.setattr(jax.profiler, "stop_trace", full)
    told = []
    traces = Traces((2, 4), tmp_path, told.append)
    assert not traces.written
    for step in (2, 4):
        traces.change(step)
    assert told == [f"{tmp_path}: no trace (OSError: no space left)"]


def test_a_trace_that_cannot_be_made_does_not_end_the_run(world, tmp_path, capsys):
    settings, _ = world
    start_trace(str(tmp_path / "another"))
    try:
        keys = {"profile.steps": (2, 20), "phases.main.steps": 20}
        assert train.pretrain(load(settings, **keys), tmp_path / "run") == 0
    finally:
        stop_trace()
    assert "traces: no trace (RuntimeError: " in capsys.readouterr().out
