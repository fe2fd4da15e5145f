"""Streams that cannot be written change no exit code of an error."""

import subprocess
import sys

import pytest
from kits.processes import environment

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
    assert ended.returncode == code
    if code == 1:
        assert "No space left" in ended.stderr and ended.stderr.count("\n") == 1
