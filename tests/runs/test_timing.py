"""Where the time of a run goes: its lines and its summary against clocks and counts made here."""

import json
import time
from typing import NamedTuple

import numpy as np
import pytest
from kits import runs

from bert_jax import train
from bert_jax.data import feed
from bert_jax.parallel import chips
from bert_jax.runs import timing

SLOW_INPUT, SLOW_STEP = 7, 12  # indices of steps
SECONDS = 0.4  # that either of them takes longer
PEAK = 1e9  # FLOP/s of a device, as these tests have it


class Slowed(NamedTuple):
    lines: dict  # {step: line of training}
    summary: dict
    vocabulary: int
    real: list  # of each training batch, whether each place is a real token


@pytest.fixture(scope="module")
def slowed(finished, tmp_path_factory):
    """A run on devices with a peak, whose batch of one step is late, and another step slow."""
    real, calls = [], []
    build, batches = train.build, feed.StoreFeed.train

    def late(*arguments):
        for number, arrays in enumerate(batches(*arguments)):
            if number == SLOW_INPUT:
                time.sleep(SECONDS)
            real.append(arrays["sequence_ids"] > 0)
            yield arrays

    def slow(trainer):
        program = trainer.train["main"]

        def step(state, rows):
            calls.append(None)
            if len(calls) == SLOW_STEP + 1:
                time.sleep(SECONDS)
            return program(state, rows)

        return trainer._replace(train={"main": step})

    workdir = tmp_path_factory.mktemp("slowed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.StoreFeed, "train", late)
        patch.setattr(train, "build", lambda *arguments: slow(build(*arguments)))
        patch.setitem(chips.PEAK_FLOPS, "cpu", PEAK)
        assert train.pretrain(runs.load(finished[0]), workdir) == 0
    summary, known = (
        json.loads((workdir / name).read_text()) for name in ("summary.json", "run.json")
    )
    lines = {line["step"]: line for line in runs.lines(workdir) if line["split"] == "train"}
    return Slowed(lines, summary, known["vocabulary"]["size"], real)


def test_late_input_is_seen_where_it_was_waited_for(slowed):
    waited = {step: line["input_seconds"] for step, line in slowed.lines.items()}
    assert waited[10] >= SECONDS > waited[20]
    assert slowed.summary["lost_seconds"]["input"] == pytest.approx(sum(waited.values()))


def test_a_slow_step_is_the_slowest_of_its_line(slowed):
    line = slowed.lines[15]
    assert line["slowest_step_seconds"] >= SECONDS > line["step_seconds"], "a median of five"
    for line in slowed.lines.values():
        assert line["step_seconds"] <= line["slowest_step_seconds"] <= line["seconds"]


def test_fill_is_that_of_the_batches(slowed):
    assert len(slowed.real) == 20
    for step, line in slowed.lines.items():
        assert line["fill"] == pytest.approx(np.mean(slowed.real[step - 5 : step]), rel=1e-6)


def test_utilization_is_useful_work_over_the_peak(slowed):
    layers, width, length, predictions, batch = 2, 32, 32, 5, 16
    forward = layers * (24 * length * width**2 + 4 * length**2 * width)
    forward += 2 * predictions * (width**2 + width * slowed.vocabulary) + 2 * width**2
    work = 3 * forward * batch * 5
    for line in slowed.lines.values():
        share = line["model_flops_utilization"]
        assert share == pytest.approx(work / line["seconds"] / (8 * PEAK), rel=1e-6)


def test_an_interval_by_hand(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    watch = timing.Clock()
    for waited, computed in ((1, 2), (1, 5), (4, 1)):
        with watch.waiting(timing.INPUT):
            pass_by(waited)
        pass_by(0.5)  # its own work
        with watch.waiting(timing.DEVICES):
            pass_by(computed)
        watch.step()
        with watch.outside(timing.SAVE):
            pass_by(10)
    values, busy = watch.split()
    assert values == {
        "seconds": 15.5,
        "step_seconds": 5.5,
        "slowest_step_seconds": 6.5,
        "input_seconds": 6,
        "save_seconds": 30,
    }
    assert busy == 6 + 1.5
