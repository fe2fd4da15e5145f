"""A run outlives the reader of its log; streams that cannot be written change no exit code of an error."""

import subprocess
import sys

import pytest
from kits.processes import environment
from kits.runs import pretraining

from bert_jax.runs import status

PROGRAM = (sys.executable, "-m", "bert_jax")
CONFIG = ("config", "--config", "demo")


def shell(redirected: str, *arguments):
    """`bert-jax` with the streams that a shell gives it."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environment(1),
    )


@pytest.fixture
def pretrain(finished, tmp_path):
    return pretraining(finished[0], tmp_path / "run", **{"log.every": 1})


@pytest.mark.slow
@pytest.mark.full
def test_a_run_goes_on_when_the_reader_of_its_log_leaves(pretrain, tmp_path):
    command = [*PROGRAM, *pretrain]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(1)) as process:
        while b"step 2/" not in process.stdout.readline():
            assert process.poll() is None
        process.stdout.close()
    assert process.returncode == 0
    assert status.status(tmp_path / "run")["state"] == "done"


LASTS = """
import sys
from bert_jax.runs import standard_streams
with standard_streams.lasting():
    print(sys.stdin.readline())
standard_streams.drop_unwritten()
sys.exit(75)
"""


@pytest.mark.parametrize("full", [True, False])
def test_a_log_that_cannot_be_written_changes_no_code(full):
    out = open("/dev/full", "w") if full else subprocess.PIPE
    command = [sys.executable, "-c", LASTS]
    variables = {key: value for key, value in environment(1).items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, env=variables) as process:
        (out if full else process.stdout).close()
        process.communicate(b"a line\n") if full else process.stdin.close()
    assert process.returncode == 75


@pytest.mark.parametrize(
    ("redirected", "words", "code"),
    [
        ("<&- >&-", (), 0),
        ("2>&-", ("--config.seed=-1",), 2),
        ("2>/dev/full", ("--config.seed=-1",), 2),
        (">/dev/full", (), 1),
        ("", ("--json", "/dev/full"), 1),
    ],
)
def test_only_results_that_cannot_be_written_change_the_code(redirected, words, code):
    ended = shell(redirected, *CONFIG, *words)
    assert ended.returncode == code
    if code == 1:
        assert "No space left" in ended.stderr and ended.stderr.count("\n") == 1
