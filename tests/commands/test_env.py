"""`bert-jax env` prints exports that a shell can evaluate, and only on CPUs."""

import subprocess
import sys

import pytest

from bert_jax import cli
from bert_jax.commands import env
from bert_jax.parallel import chips


@pytest.mark.skipif(sys.platform != "linux", reason="settings of glibc")
@pytest.mark.parametrize("device, lines", [("null", 1), ("nvidia0", 0), ("accel0", 0)])
def test_settings_are_exported_only_on_cpus(tmp_path, monkeypatch, capsys, device, lines):
    monkeypatch.setattr(chips, "DEVICES", tmp_path)
    (tmp_path / device).touch()
    for name in ("JAX_PLATFORMS", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["env"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == lines
    program = "import os; print(os.environ.get('GLIBC_TUNABLES'))"
    script = f'{printed}exec {sys.executable} -c "{program}"'
    done = subprocess.run(["bash", "-c", script], env={}, capture_output=True, text=True)
    assert done.stdout.strip() == (env.MEMORY if lines else "None") and not done.stderr
