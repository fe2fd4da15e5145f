"""The report of a run compares the held-out loss with frequencies, and estimates the time left."""

import time

import pytest
from kits.small import small_config

from bert_jax.runs import report, workdir


def test_the_log_compares_the_heldout_loss_with_frequencies(tmp_path, capsys):
    workdir.write_info(tmp_path, {"unigram_entropy": 3.0, "phases": {}})
    with report.Reporter(workdir.Workdir(tmp_path), 0, small_config()) as reporter:
        reporter.start(0, compile_seconds=0.0)
        reporter.report(10, "heldout", {"loss": 2.5, "mlm_loss_masked": 2.5, "f1": 0.25})
    command, line = capsys.readouterr().out.splitlines()
    assert command.endswith(f"tensorboard --logdir {tmp_path}/tensorboard")
    assert "f1 0.25" in line and "mlm_loss_masked 2.50, 0.50 nats" in line


def test_the_time_left_counts_the_flops_of_each_phase(tmp_path):
    """A hundred seconds for half of the steps, and the others are three times as expensive."""
    flops = {"main": {"flops_per_step": 1e9}, "late": {"flops_per_step": 3e9}}
    workdir.write_info(tmp_path, {"unigram_entropy": 3.0, "phases": flops})
    config = small_config()
    with config.unlocked():
        config.phases.late, config.phase_order = config.phases.main, ("main", "late")
    steps = config.phases.main.steps
    with report.Reporter(workdir.Workdir(tmp_path), 0, config) as reporter:
        assert reporter.seconds_left() == 0
        reporter.start(0, compile_seconds=0.0)
        reporter.started = time.monotonic() - 100
        reporter.advance(steps)
        assert reporter.seconds_left() == pytest.approx(300, rel=0.1)
