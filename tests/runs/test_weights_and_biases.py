"""Weights & Biases: the reports of a run without a network, and what is missing does not end it."""

import time

import pytest
import wandb
from kits.small import VOCABULARY, small_config

from bert_jax.errors import BadInput
from bert_jax.runs import report, weights_and_biases, workdir

KEY = "log.wandb=us/babies"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The library without settings of this machine and without a network."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://localhost:9")
    wandb.teardown()
    yield
    wandb.teardown()


def start(directory, step: int = 0):
    """Returns the reporter of a run after its start."""
    info = {"unigram_entropy": 3.0, "phases": {"main": {"flops_per_step": 1e9}}, "run": "b4b1e5"}
    workdir.write_info(directory, info | {"vocabulary": VOCABULARY._asdict()})
    reporter = report.Reporter(workdir.Workdir(directory), step, small_config(KEY))
    reporter.start(step, compile_seconds=0.0)
    return reporter


def files(directory) -> list[bytes]:
    """Returns what was written by each start."""
    return [path.read_bytes() for path in sorted((directory / "wandb").glob("*/run-b4b1e5.wandb"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"WANDB_MODE": "offline"}, id="offline"),
        pytest.param({}, id="no login", marks=pytest.mark.full),
        pytest.param(
            {"WANDB_API_KEY": 40 * "a", "WANDB_INIT_TIMEOUT": "1"},
            id="no network",
            marks=pytest.mark.full,
        ),
    ],
)
def test_reports_are_those_of_tensorboard(tmp_path, library, monkeypatch, variables, capfd):
    """Each start has the id of the run, also without a server. Nothing else is on standard output."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for step in (5, 10):
        time.sleep(1)  # the directory of an offline start has the name of its second
        with start(tmp_path) as reporter:
            reporter.report(
                step, "heldout", {"loss": 2.5, "probe": 7.25, "headline": "good", "x": None}
            )
    wandb.teardown()  # its process writes the last lines
    content = [each for each in files(tmp_path) if b"heldout/loss" in each]
    assert len({*content}) == 2
    for each in content:
        for expected in (b"heldout/loss", b"heldout/probe", b"7.25", b"model.width", b"babies"):
            assert expected in each
        assert b"headline" not in each and b"heldout/x" not in each
    printed = capfd.readouterr().out.splitlines()
    assert {line.split()[0] for line in printed} == {"to", "Weights", "step"}


class Broken:
    """A run whose process has died."""

    def __getattr__(self, name):
        raise BrokenPipeError(name)


@pytest.mark.slow
def test_a_failure_of_the_library_does_not_end_a_run(tmp_path, library, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    with start(tmp_path) as reporter:
        uploads = reporter.curves[-1]
        run, uploads.run = uploads.run, Broken()
        reporter.report(5, "heldout", {"loss": 2.5, "seconds": 1.0})
        assert reporter.has_line(5, "heldout")
    run.finish()


def test_its_files_stay_out_of_buckets(tmp_path):
    uploaded = []

    class Bucket:
        def upload(self, path, name):
            uploaded.append(name)

    class Lock:
        def check(self): ...

    (tmp_path / "wandb" / "run-1").mkdir(parents=True)
    for name in ("wandb/run-1/a.wandb", "wandb/debug.log", "status.json"):
        (tmp_path / name).write_text("{}")
    run = workdir.Workdir("gs://bucket/run", tmp_path, Bucket())
    run.lock = Lock()
    run.upload()
    assert uploaded == ["status.json"]


def test_a_missing_library_is_named(monkeypatch):
    weights_and_biases.check(small_config(KEY))
    monkeypatch.setattr(weights_and_biases, "find_spec", lambda name: None)
    weights_and_biases.check(small_config())
    with pytest.raises(BadInput, match=r"config.log.wandb='us/babies': pip install .*\[wandb\]"):
        weights_and_biases.check(small_config(KEY))


@pytest.mark.parametrize("name", ["us/", "/babies", "a/b/c", "what?"])
def test_a_name_that_the_library_would_refuse_is_refused(name):
    with pytest.raises(BadInput, match="config.log.wandb="):
        small_config(f"log.wandb={name}")
