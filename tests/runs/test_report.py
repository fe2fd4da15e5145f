"""The report of a run compares the held-out loss with the expected range, and estimates the time left."""

import time

import pytest
from kits.small import small_config

from bert_jax.runs import report, workdir


@pytest.mark.parametrize("loss, where", [(1.5, "below"), (2.5, "within"), (3.5, "above")])
def test_the_heldout_loss_is_compared_with_the_expected_range(tmp_path, capsys, loss, where):
    workdir.write_info(tmp_path, {"unigram_entropy": 3.0, "phases": {}})
    run = workdir.Workdir(tmp_path)
    config = small_config("expected_loss=(10, 2.0, 3.0, 20, 2.0, 3.0)")
    with report.Reporter(run, 0, config, ("heldout", "other")) as reporter:
        reporter.start(0, compile_seconds=0.0)
        for step, split in ((5, "heldout"), (10, "heldout"), (10, "other")):
            values = {"loss": loss, "mlm_loss_masked": loss, "f1": 0.25}
            reporter.report(step, split, values)
    command, before, after, other = capsys.readouterr().out.splitlines()
    assert command.endswith(f"tensorboard --logdir {tmp_path}/tensorboard")
    assert where in after and where not in before + other
    headline = f"mlm_loss_masked {loss:.2f}, {abs(loss - 3):.2f} nats"
    assert "f1 0.25" in after and headline in after


def test_the_time_left_counts_the_flops_of_each_phase(tmp_path):
    """A hundred seconds for half of the steps, and the others are three times as expensive."""
    flops = {"main": {"flops_per_step": 1e9}, "late": {"flops_per_step": 3e9}}
    workdir.write_info(tmp_path, {"unigram_entropy": 3.0, "phases": flops})
    config = small_config()
    with config.unlocked():
        config.phases.late, config.phase_order = config.phases.main, ("main", "late")
    steps = config.phases.main.steps
    with report.Reporter(workdir.Workdir(tmp_path), 0, config, ()) as reporter:
        assert reporter.seconds_left() == 0
        reporter.start(0, compile_seconds=0.0)
        reporter.started = time.monotonic() - 100
        reporter.advance(steps)
        assert reporter.seconds_left() == pytest.approx(300, rel=0.1)
