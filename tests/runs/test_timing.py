"""Where the time of a run goes: its lines and its summary against clocks and counts made here."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from kits import running
from kits.running import lines, load

from bert_jax import config as configs
from bert_jax import train
from bert_jax.data import feed
from bert_jax.parallel import chips
from bert_jax.runs import metrics, timing

SLOW_INPUT, SLOW_STEP = 7, 12  # indices of steps
SECONDS = 0.4  # that either of them takes longer
PEAK = 1e9  # FLOP/s of a device, as these tests have it


@pytest.fixture(scope="module")
def slowed(tmp_path_factory):
    """(config, vocabulary size, lines, summary, rows) of a run on devices with a peak, whose batch of one step is late,
    and another step slow; rows: whether each place of each training batch is a real token."""
    rows, calls = [], []
    build, batches = train.build, feed.StoreFeed.train

    def late(*arguments):
        for number, arrays in enumerate(batches(*arguments)):
            if number == SLOW_INPUT:
                time.sleep(SECONDS)
            rows.append(arrays["sequence_ids"] > 0)
            yield arrays

    def slow(trainer):
        program = trainer.train["main"]

        def step(state, rows):
            calls.append(None)
            if len(calls) == SLOW_STEP + 1:
                time.sleep(SECONDS)
            return program(state, rows)

        return trainer._replace(train={"main": step})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.StoreFeed, "train", late)
        patch.setattr(train, "build", lambda *arguments: slow(build(*arguments)))
        patch.setitem(chips.PEAK_FLOPS, "cpu", PEAK)
        settings, workdir = running.train(tmp_path_factory.mktemp("world"))
    summary = json.loads((workdir / "summary.json").read_text())
    vocabulary = json.loads((workdir / "run.json").read_text())["vocabulary"]["size"]
    return load(settings), vocabulary, lines(workdir), summary, rows


def training(found):
    return {line["step"]: line for line in found if line["split"] == "train"}


def test_late_input_is_seen_where_it_was_waited_for(slowed):
    waited = {step: line["input_seconds"] for step, line in training(slowed[2]).items()}
    assert waited[10] >= SECONDS
    # The first line has the opening of the store; the others only a prefetched batch a step.
    assert waited[15] < SECONDS / 2 and waited[20] < SECONDS / 2
    assert slowed[3]["lost_seconds"]["input"] == pytest.approx(sum(waited.values()))


def test_a_slow_step_is_the_slowest_of_its_line(slowed):
    found = training(slowed[2])
    assert found[15]["slowest_step_seconds"] >= SECONDS
    assert found[15]["step_seconds"] < SECONDS / 2, "the median of five"
    assert found[20]["slowest_step_seconds"] < SECONDS
    for line in found.values():
        assert line["step_seconds"] <= line["slowest_step_seconds"] <= line["seconds"]


def test_fill_is_that_of_the_batches(slowed):
    *_, found, _, rows = slowed
    assert len(rows) == 20
    for step, line in training(found).items():
        assert line["fill"] == pytest.approx(np.mean(rows[step - 5 : step]), rel=1e-6)


def test_utilization_is_useful_work_over_the_peak(slowed):
    config, vocabulary, found, *_ = slowed
    layers, width, length, predictions = 2, 32, 32, 5
    forward = layers * (24 * length * width**2 + 4 * length**2 * width)
    forward += 2 * predictions * (width**2 + width * vocabulary) + 2 * width**2
    work = 3 * forward * config.phases.main.batch * 5
    for line in training(found).values():
        share = line["model_flops_utilization"]
        assert share == pytest.approx(work / line["seconds"] / (8 * PEAK), rel=1e-6)


def test_a_line_for_people(slowed):
    line = training(slowed[2])[10] | {"peak_bytes": 12_345_000_000}
    line |= timing.slowest([3.0, 1.0, 2.0])
    text = timing.describe(line)
    assert f"utilization {line['model_flops_utilization']:.3f}" in text
    assert "peak 11.50 GiB" in text and "slowest host 0 by 1 s" in text
    unknown = line | {"model_flops_utilization": None, "peak_bytes": None, "fill": None}
    text = timing.describe({key: unknown[key] for key in unknown if "host" not in key})
    assert not any(word in text for word in ("utilization", "peak", "host", "fill", "None"))


def test_memory_is_that_of_the_fullest_device():
    def device(stats):
        return SimpleNamespace(memory_stats=lambda: stats)

    used = [device({"peak_bytes_in_use": number}) for number in (5, 9, 7)]
    assert metrics.peak_bytes([*used, device(None), device({})]) == 9
    assert metrics.peak_bytes([device(None)]) is None


# --- By a clock of our own ------------------------------------------------------------------------


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
    with watch.outside():
        pass_by(3)
    pass_by(2)
    watch.step()
    values, busy = watch.split()
    assert values["seconds"] == values["slowest_step_seconds"] == busy == 2
    assert values["input_seconds"] == values["save_seconds"] == 0


def test_the_slowest_of_several():
    assert timing.slowest([3.0]) == {}
    assert timing.slowest([3.0, 5.0]) == {"slowest_host": 1, "slowest_host_seconds": 2.0}
    assert timing.slowest([3.0, 9.0, 4.0, 8.0]) == {"slowest_host": 1, "slowest_host_seconds": 5.0}


def test_every_key_of_a_line_is_known_as_timed_or_not(slowed):
    timed = set(training(slowed[2])[5]) & timing.TIMES
    assert timed == timing.TIMES - {"slowest_host", "slowest_host_seconds"}
    assert not timing.TIMES & set(configs.flatten(configs.base()))
