"""Output streams that cannot be written do not change the exit code of an error, and lose no work."""

import re
import signal
import subprocess
import sys

import pytest
from kits.processes import environment
from kits.runs import pretraining

from bert_jax.runs import status

PROGRAM = (sys.executable, "-m", "bert_jax")
CONFIG = ("config", "--config", "demo")


def shell(redirections: str, *arguments):
    """Runs bert-jax with the shell's redirections of its streams."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" {redirections}', "bash", *PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environment(1),
    )


@pytest.mark.parametrize(
    ("redirections", "arguments", "code"),
    [
        ("| true", (), 0),
        pytest.param("2>&-", ("--config.seed=-1",), 2, marks=pytest.mark.full),
        ("2>/dev/full", ("--config.seed=-1",), 2),
        (">/dev/full", (), 1),
        pytest.param("", ("--json", "/dev/full"), 1, marks=pytest.mark.full),
        pytest.param("--json >(true)", (), 1, marks=pytest.mark.full),
    ],
)
def test_only_results_that_cannot_be_written_change_the_exit_code(redirections, arguments, code):
    done = shell(redirections, *CONFIG, *arguments)
    assert done.returncode == code and "Traceback" not in done.stderr
    if code == 1:
        assert re.search("No space left|Broken pipe", done.stderr) and done.stderr.count("\n") == 1


@pytest.mark.full
def test_a_run_with_a_closed_log_is_saved_at_an_interrupt(finished, tmp_path):
    """Ctrl-C under `| tee log` ends both processes."""
    changes = {"log.every": 1, "phases.main.steps": 100_000, "checkpoint.every": 100_000}
    command = [*PROGRAM, *pretraining(finished[0], tmp_path / "run", **changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(1)) as process:
        while b"step 2/" not in process.stdout.readline():
            assert process.poll() is None
        process.stdout.close()
        process.send_signal(signal.SIGINT)
    state = status.status(tmp_path / "run")
    assert process.returncode == 130 and state["state"] == "interrupted"
    assert state["last_checkpoint"] == state["step"] >= 2
