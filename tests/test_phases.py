"""Phases: batch and row length that grow, and a run that is stopped inside a phase."""

import json
import signal

import pytest
from kits.runs import assert_same_bits, lines, params, signal_at
from kits.small import SMALL, overrides

from bert_jax import config, optimizer, train
from bert_jax.runs import status

pytestmark = pytest.mark.slow  # each compiles programs for eight devices

BATCHES = {"small": 8, "medium": 16, "large": 32}
LENGTHS = {"small": 16, "medium": 32, "large": 32}


def load(settings, **changes):
    """Returns a small bert_base_batch_warmup: its first three phases, with three steps of a 32nd of their rows each."""
    values = {key: value for key, value in settings.items() if not key.startswith("phases")}
    values |= {
        "phase_order": ",".join(BATCHES),
        "optimizer.learning_rate": 1e-3,
        "schedule.name": "wsd",
        "schedule.decay": 2,
        "log.every": 2,
        "evaluate.every": 0,
        "checkpoint.every": 4,
        "checkpoint.keep": 9,
        "train.rows_per_device": 1,
        "model.layers": 1,
        "evaluate.batch": 8,
    }
    for name, batch in BATCHES.items():
        shape = {"batch": batch, "length": LENGTHS[name], "max_predictions": 3, "steps": 3}
        values |= {f"phases.{name}.{key}": value for key, value in shape.items()}
    loaded = config.find("bert_base_batch_warmup")
    with loaded.unlocked():
        loaded.model = config.find("demo").model
        del loaded.phases.short, loaded.phases.long
    config.apply(loaded, overrides(values | changes))
    config.check(loaded)
    return loaded


@pytest.fixture(scope="module")
def phased_run(finished, tmp_path_factory):
    """(settings, workdir) of an undisturbed run with three phases on eight devices."""
    run = tmp_path_factory.mktemp("phases") / "run"
    assert train.pretrain(load(finished[0]), run) == 0
    return finished[0], run


def divisions(workdir) -> dict:
    """Returns {phase: (number of micro-batches, rows per device of each)}."""
    phases = json.loads((workdir / "run.json").read_text())["phases"]
    return {
        name: (phases[name]["micro_batches"], phases[name]["rows_per_device"]) for name in BATCHES
    }


def test_a_larger_batch_has_more_micro_batches_of_the_same_size(phased_run):
    assert divisions(phased_run[1]) == {"small": (1, 1), "medium": (2, 1), "large": (4, 1)}
    reports = [line for line in lines(phased_run[1]) if line["split"] == "train"]
    # A report every two steps and at the end of each phase: no report spans two phases.
    assert [line["step"] for line in reports] == [2, 3, 4, 6, 8, 9]
    rows = [round(line["rows_per_second"] * line["seconds"]) for line in reports]
    assert rows == [2 * 8, 8, 16, 2 * 16, 2 * 32, 32]
    phases = config.phases(load(phased_run[0]))
    rate = optimizer.schedule("wsd", 1e-3, SMALL["schedule.warmup"], 9, decay=2, phases=phases)
    for line in reports:
        assert line["learning_rate"] == pytest.approx(float(rate(line["step"] - 1)), rel=1e-6)


def test_a_run_stopped_inside_the_second_phase_ends_with_the_same_bits(
    phased_run, tmp_path, monkeypatch
):
    settings, undisturbed = phased_run
    signal_at(monkeypatch, 4, signal.SIGTERM)
    assert train.pretrain(load(settings), tmp_path / "run") == 75
    assert 3 < status.status(tmp_path / "run")["last_checkpoint"] < 6
    assert train.pretrain(load(settings), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    assert lines(tmp_path / "run")[-1]["loss"] == lines(undisturbed)[-1]["loss"]


def test_the_shipped_config_reads_as_many_rows_as_bert_base():
    def rows(name):
        return sum((p.last - p.first) * p.batch for p in config.phases(config.load(name)))

    assert rows("bert_base_batch_warmup") == rows("bert_base") == 256_000_000
