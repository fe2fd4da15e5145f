"""Profiler traces: they contain exactly the configured steps, and do not change the run."""

import pytest
from jax.profiler import start_trace, stop_trace
from kits.runs import assert_same_bits, lines, load, params
from kits.traces import traced_steps

from bert_jax import train
from bert_jax.runs import timing
from bert_jax.runs.profiler import Traces


@pytest.mark.full
@pytest.mark.slow
def test_exactly_the_configured_steps_are_traced(finished, tmp_path):
    settings, undisturbed = finished
    assert not (undisturbed / "traces").exists()
    run, chosen = tmp_path / "run", load(settings, **{"profile.steps": (12, 14)})
    assert train.pretrain(chosen, run) == 0
    assert traced_steps(run / "traces") == [[12, 13]]
    assert_same_bits(params(run), params(undisturbed))

    def numbers(workdir):
        return [{key: line[key] for key in line.keys() - timing.TIMES} for line in lines(workdir)]

    assert numbers(run) == numbers(undisturbed)


def test_a_failed_trace_is_logged_and_does_not_end_the_run(tmp_path):
    log = []
    start_trace(str(tmp_path / "another"))
    try:
        with Traces((2, 4), tmp_path / "traces", log.append) as traces:
            for step in (2, 4):
                if traces.is_due(step):
                    traces.toggle(step)
    finally:
        stop_trace()
    assert not (tmp_path / "traces").exists()
    [line] = log
    assert str(tmp_path / "traces") in line
