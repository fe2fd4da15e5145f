"""The report of a run estimates the time left, and has samples of its evaluations."""

import contextlib

import pytest
from kits.small import VOCABULARY, small_config
from kits.texts import PROSE

from bert_jax.runs import metrics_file, report, workdir
from bert_jax.tokenizers import tokenizer as tokenizers


@contextlib.contextmanager
def opened(directory, step: int = 0):
    """Opens the reporter of a run in two phases."""
    flops = {"main": {"flops_per_step": 1e9}, "late": {"flops_per_step": 3e9}}
    info = {"unigram_entropy": 3.0, "phases": flops, "devices": ["cpu"]}
    info["vocabulary"] = VOCABULARY._asdict()
    workdir.write_info(directory, info)
    config = small_config()
    with config.unlocked():
        config.phases.late, config.phase_order = config.phases.main, ("main", "late")
    with report.Reporter(workdir.Workdir(directory), step, config) as reporter:
        yield reporter


def test_the_time_left_counts_the_flops_of_each_phase(tmp_path):
    """A hundred seconds for half of the steps, and the others are three times as expensive."""
    with opened(tmp_path) as reporter:
        assert reporter.seconds_left() == 0
        reporter.start(0, compile_seconds=0.0)
        reporter.started -= 100
        reporter.advance(reporter.config.phases.main.steps)
        assert reporter.seconds_left() == pytest.approx(300, rel=0.1)


def test_samples_of_repeated_steps_are_dropped(tmp_path, capsys):
    tokenizers.train("wordpiece", PROSE, 150, True).save(tmp_path / "tokenizer")
    sample = ["the fox", {"guess": "y", "target": "x", "probability": 0.25}]
    review = {"samples": [sample] * 3, "tables": {}}
    path = tmp_path / "samples.jsonl"

    def rows() -> list[tuple]:
        lines = metrics_file.lines(path, metrics_file.SAMPLES)
        return [(line["step"], line["row"]) for line in lines]

    with opened(tmp_path) as reporter:
        reporter.show(10, "dev", {}, review)
        reporter.show(20, "dev", {}, review)
        reporter.show(20, "dev", {}, {})
    expected = [(10, 0), (10, 1), (10, 2), (10, None)]
    assert rows() == [*expected, *((20, row) for _, row in expected)]
    assert capsys.readouterr().out.count("the fox [y 0.25, not x]") == 4
    with opened(tmp_path, 10) as reporter:
        reporter.start(10, compile_seconds=0.0)
    assert rows() == expected
