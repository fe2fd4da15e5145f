"""Streams that cannot be written change no exit code of an error, and lose no work."""

import signal
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
        ["bash", "-o", "pipefail", "-c", f'"$@" {redirected}', "bash", *PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environment(1),
    )


@pytest.mark.parametrize(
    ("redirected", "words", "code"),
    [
        ("| true", (), 0),
        ("2>&-", ("--config.seed=-1",), 2),
        ("2>/dev/full", ("--config.seed=-1",), 2),
        (">/dev/full", (), 1),
        ("", ("--json", "/dev/full"), 1),
    ],
)
def test_only_results_that_cannot_be_written_change_the_code(redirected, words, code):
    ended = shell(redirected, *CONFIG, *words)
    assert ended.returncode == code and "Traceback" not in ended.stderr
    if code == 1:
        assert "No space left" in ended.stderr and ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_run_whose_log_nobody_reads_is_saved_when_it_is_stopped(finished, tmp_path):
    """As by Ctrl-C under `| tee log`, which ends both."""
    changes = {"log.every": 1, "phases.main.steps": 100_000, "checkpoint.every": 100_000}
    command = [*PROGRAM, *pretraining(finished[0], tmp_path / "run", **changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(1)) as process:
        while b"step 2/" not in process.stdout.readline():
            assert process.poll() is None
        process.stdout.close()
        process.send_signal(signal.SIGINT)
    found = status.status(tmp_path / "run")
    assert process.returncode == 130 and found["state"] == "interrupted"
    assert found["last_checkpoint"] == found["step"] >= 2
