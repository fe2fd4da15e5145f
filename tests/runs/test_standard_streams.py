"""A run outlives the reader of its log; where standard streams cannot be written, a line says so or the code stays."""

import subprocess
import sys

import pytest
from kits.processes import environment
from kits.small import SMALL, overrides, write_corpus

from bert_jax.runs import status

PROGRAM = (sys.executable, "-m", "bert_jax")


def pretrain(directory):
    write_corpus(directory / "corpus.txt", documents=60)
    changes = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    keys = (f"--config.{key}" for key in overrides(SMALL | changes | {"log.every": 1}))
    return [*PROGRAM, "pretrain", "--config", "demo", *keys, "--workdir", str(directory / "run")]


def shell(redirected: str, *arguments):
    """`bert-jax` with the streams that a shell gives it."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environment(1),
    )


@pytest.mark.slow
def test_a_run_goes_on_when_the_reader_of_its_log_leaves(tmp_path):
    command = pretrain(tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(1)) as process:
        while b"step 2/" not in process.stdout.readline():
            assert process.poll() is None
        process.stdout.close()
    assert process.returncode == 0
    assert status.status(tmp_path / "run")["state"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize("redirected", [">/dev/full 2>/dev/full", ">&- 2>&-"])
def test_a_run_needs_no_log(tmp_path, redirected):
    command = pretrain(tmp_path)[len(PROGRAM) :]
    assert shell(redirected, *command).returncode == 0
    assert status.status(tmp_path / "run")["state"] == "done"


def test_closed_streams_change_no_code(tmp_path):
    ended = shell("<&- >&-", "config", "--config", "demo")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert shell("2>&-", "config", "--config", "demo", "--config.seed=-1").returncode == 2
    # The first file that is opened does not get the number of a closed stream.
    ended = shell(">&-", "config", "--config", "demo", "--json", str(tmp_path / "config.json"))
    assert ended.returncode == 0 and (tmp_path / "config.json").read_text().startswith("{\n")


@pytest.mark.parametrize(
    "redirected, words, name",
    [(">/dev/full", [], "standard output"), ("", ["--json", "/dev/full"], "--json /dev/full")],
)
def test_results_on_a_full_disk_are_an_error_of_one_line(redirected, words, name):
    ended = shell(redirected, "config", "--config", "demo", *words)
    assert ended.returncode == 1
    assert ended.stderr == f"bert-jax: {name}: No space left on device\n"


def test_the_code_of_an_error_does_not_depend_on_who_reads_it():
    assert shell("2>/dev/full", "config", "--config", "demo", "--config.seed=-1").returncode == 2


def test_results_are_written_before_they_are_told(tmp_path):
    path = str(tmp_path / "config.json")
    shell("| true", "config", "--config", "demo", "--json", path)
    assert (tmp_path / "config.json").read_text().endswith("}\n")
    assert shell(">/dev/full", "config", "--config", "demo", "--json", path).returncode == 1
