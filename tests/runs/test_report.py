"""The report of a run estimates the time left."""

import pytest
from kits.small import VOCABULARY, small_config

from bert_jax.runs import report, workdir


def test_the_time_left_counts_the_flops_of_each_phase(tmp_path):
    """A hundred seconds for half of the steps, and the others are three times as expensive."""
    flops = {"main": {"flops_per_step": 1e9}, "late": {"flops_per_step": 3e9}}
    info = {"unigram_entropy": 3.0, "phases": flops, "devices": ["cpu"]}
    info["vocabulary"] = VOCABULARY._asdict()
    workdir.write_info(tmp_path, info)
    config = small_config()
    with config.unlocked():
        config.phases.late, config.phase_order = config.phases.main, ("main", "late")
    with report.Reporter(workdir.Workdir(tmp_path), 0, config) as reporter:
        assert reporter.seconds_left() == 0
        reporter.start(0, compile_seconds=0.0)
        reporter.started -= 100
        reporter.advance(config.phases.main.steps)
        assert reporter.seconds_left() == pytest.approx(300, rel=0.1)
