"""The report of a run compares the held-out loss with the expected range."""

import pytest
from kits.small import small_config

from bert_jax.runs import report, workdir


@pytest.mark.parametrize("loss, where", [(1.5, "below"), (2.5, "within"), (3.5, "above")])
def test_the_heldout_loss_is_compared_with_the_expected_range(tmp_path, capsys, loss, where):
    workdir.write_info(tmp_path, {"unigram_entropy": 3.0})
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
