"""What a run tells about its loss."""

import pytest

from bert_jax.runs import report

BANDS = (10, 5.0, 6.0, 20, 3.0, 5.0)


@pytest.mark.parametrize(
    "step, expected",
    [(9, None), (10, (5.0, 6.0)), (15, (4.0, 5.5)), (20, (3.0, 5.0)), (21, None)],
)
def test_a_band_is_a_line_between_known_steps(step, expected):
    assert report.band(BANDS, step) == expected
    assert report.band((), step) is None


@pytest.mark.parametrize("loss, word", [(5.6, "above"), (3.9, "below"), (4.5, "within")])
def test_the_log_prints_the_band(tmp_path, capsys, loss, word):
    (tmp_path / "run.json").write_text("{}")
    with report.Reporter(tmp_path, 0, 20, BANDS) as reporter:
        reporter.start(0, 1.0)
        reporter.report(15, "heldout", {"loss": loss, "mlm_loss": loss, "seconds": 1.0})
    assert f"mlm_loss is {word} the normal 4.00 to 5.50" in capsys.readouterr().out
