"""`prepare` on Apache Beam: bitwise the same store as with the process pool, and the same errors."""

import sys
from importlib.util import find_spec

import pytest
from kits import corpora
from kits.corpora import files, two_sources

from bert_jax import cli
from bert_jax.data.preparation import beam
from bert_jax.data.preparation import prepare as preparing
from bert_jax.errors import BadInput, Unfinished

needs_beam = pytest.mark.skipif(not find_spec("apache_beam"), reason="needs the extra beam")
TWO = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
# The portable runner protocol of Flink and Spark, with Beam's own job server.
FLINK = ["--job_endpoint=embed", "--environment_type=LOOPBACK"]


@needs_beam
@pytest.mark.slow
@pytest.mark.parametrize(
    "runner, options, key",
    [
        ("DirectRunner", [], "corpus.heldout_by=end"),
        pytest.param("DirectRunner", TWO, "corpus.heldout_by=hash", marks=pytest.mark.full),
        pytest.param("FlinkRunner", FLINK, "corpus.heldout_by=hash", marks=pytest.mark.full),
    ],
)
def test_the_store_equals_that_of_the_process_pool(tmp_path, monkeypatch, runner, options, key):
    """Also checks that Beam downloads nothing to the home directory."""
    corpora.small_parts(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    one, other = (two_sources(tmp_path, key, f"store={tmp_path}/{n}") for n in range(2))
    corpora.prepare(one)
    preparing.prepare(other, lambda line: None, beam.open_runner(runner, options))
    assert files(other.store) == files(one.store)
    assert not list(tmp_path.glob(".*")) and not (tmp_path / "home").exists()


def fail(number: int) -> None:
    raise BadInput("a file") if number else ValueError


@needs_beam
@pytest.mark.parametrize("tasks, error", [([1, 1], BadInput), ([0, 1], Unfinished)])
def test_errors_of_tasks_are_raised_in_the_driver(tmp_path, tasks, error):
    with pytest.raises(error):
        list(beam.open_runner("DirectRunner", [])(tmp_path / "tasks")(fail, tasks))


@needs_beam
@pytest.mark.parametrize(
    "runner, option",
    [
        ("DirectRunner", "--nothing=3"),
        ("DirectRunner", "--direct_num_workers=x"),
        ("DataflowRunner", "--region=x"),  # without a project
        ("NoRunner", "--nothing=3"),
        ("", "--direct_num_workers=2"),
    ],
)
def test_bad_options_are_named(runner, option):
    named = {"--region=x": "project"}.get(option, option.partition("=")[0])
    with pytest.raises(BadInput, match=named):
        beam.open_runner(runner, [option])


def test_without_beam_the_extra_is_named(tmp_path, capsys, monkeypatch):
    for name in ("apache_beam", "apache_beam.options.pipeline_options"):
        monkeypatch.setitem(sys.modules, name, None)
    store = f"--config.store={tmp_path}/store"
    assert cli.main(["prepare", "--config", "demo", store, "--runner=DirectRunner"]) == 2
    assert "`beam`" in capsys.readouterr().err and not list(tmp_path.iterdir())
