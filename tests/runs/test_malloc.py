"""Commands that compute have the settings of malloc on CPUs, and nothing else about their process changes."""

import json
import os
import platform
import subprocess
import sys

import pytest

from bert_jax import cli
from bert_jax.parallel import chips
from bert_jax.runs import malloc

IS_GLIBC = platform.libc_ver()[0] == "glibc"
# The command line with a main that reports its process instead of running a command.
PROGRAM = """
import json, os, sys
from bert_jax import __main__
__main__.main = lambda: print(json.dumps([os.getpid(), os.environ.get("GLIBC_TUNABLES"), sys.argv[1:]])) or 75
__main__.run()
"""


@pytest.mark.parametrize(
    "variables, command, expected",
    [
        ({}, "pretrain", malloc.MEMORY if IS_GLIBC else None),
        ({}, "status", None),  # it computes nothing
        ({"GLIBC_TUNABLES": ""}, "pretrain", ""),
        ({"JAX_PLATFORMS": "cuda,cpu"}, "pretrain", None),
    ],
)
def test_a_command_that_computes_starts_again_with_the_settings(variables, command, expected):
    environment = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    arguments = [command, "--workdir", "with 'quotes' and  spaces"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = process.communicate()
    assert json.loads(printed) == [process.pid, expected, arguments]
    assert process.returncode == 75


@pytest.mark.skipif(not IS_GLIBC, reason="settings of glibc")
@pytest.mark.parametrize("device, is_cpu", [("null", True), ("nvidia0", False), ("accel0", False)])
def test_env_exports_the_settings_only_on_cpus(tmp_path, monkeypatch, capsys, device, is_cpu):
    monkeypatch.setattr(chips, "DEVICES", tmp_path)
    (tmp_path / device).touch()
    for name in ("JAX_PLATFORMS", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["env"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("GLIBC_TUNABLES=") == is_cpu
    program = "import os; print(os.environ.get('GLIBC_TUNABLES'))"
    script = f'{printed}exec {sys.executable} -c "{program}"'
    done = subprocess.run(["bash", "-c", script], env={}, capture_output=True, text=True)
    assert done.stdout.strip() == (malloc.MEMORY if is_cpu else "None") and not done.stderr
