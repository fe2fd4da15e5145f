"""Scripts of benchmarks/: bad input ends in a line, and what is measured is what happened."""

import importlib
import subprocess
import sys

import pytest
from kits.places import ROOT
from kits.slices import needs_libtpu

from benchmarks import timed
from bert_jax.errors import BadInput


@pytest.mark.parametrize(
    "script, arguments, words",
    [
        ("kernels", ["--only", "splash"], "splash"),
        ("learnt", ["--workdir", "nowhere"], "nowhere"),
        ("scaling", ["--config.model.depth=3"], "--config.model.depth"),
        ("scaling", ["--meshes", "2"], "--meshes 2"),
        ("scaling", ["--slices", "v5e:3x3"], "v5e:3x3"),
        ("start", ["--turns", "0"], "--turns: 0"),
        ("step", ["--shapes", "bert_tiny"], "--shapes bert_tiny"),
        ("step", ["--shapes", "demo:8"], "phases.short"),
        ("step", ["--shapes", "bert_tiny:4", "--row", "3"], "--row"),
        ("tpu", ["--only", "base", "--config.model.layer=1"], "model.layer"),
        ("tpu", ["--only", "base", "--config.model.attention=splash"], "attention_dropout=0.1"),
        ("verify", ["--store", "nowhere", "--turns", "1"], "nowhere"),
    ],
)
@needs_libtpu
def test_bad_input_is_named(script, arguments, words, capsys):
    assert importlib.import_module(f"benchmarks.{script}").main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error


def test_a_command_is_measured():
    code = "x = bytearray(300 << 20); sum(range(5_000_000))"
    # In a process that is small: the peak of one that is started is never less than its parent's.
    told = f"from benchmarks import timed; print(*timed.run([{sys.executable!r}, '-c', {code!r}]))"
    ended = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=ROOT)
    seconds, processors, peak = map(float, ended.stdout.split())
    assert 300 << 20 < peak < 600 << 20 and 0 < processors < seconds + 0.1
    with pytest.raises(BadInput, match="3: why"):
        timed.run([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"])


@needs_libtpu
@pytest.mark.full
def test_the_compiler_makes_the_instructions_that_are_kept():
    """In a process of its own: libtpu is told to write its schedules before it is loaded."""
    command = [sys.executable, "benchmarks/kernels.py", "--only", "splash-128"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
