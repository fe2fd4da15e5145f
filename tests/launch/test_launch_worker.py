"""launch/worker.sh install, on a machine whose Python is too old: what it asks of pip and of uv."""

import os
import shutil
import subprocess
import sys

import pytest
from kits.clouds import ROOT

OLD = """#!/usr/bin/env bash
[[ "$*" == *"-m pip install"*" uv" ]] || exit 1
echo "$*" >>"$NOTED"
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/bin"
cp "$STANDINS/uv" "$2/bin/uv"
"""
UV = """#!/usr/bin/env bash
echo "uv $*" >>"$NOTED"
[ "$2" != find ] || echo "$STANDINS/new"
"""
NEW = f"""#!/usr/bin/env bash
case "$*" in
  '-m venv'*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  '-m pip'*) echo "$*" >>"$NOTED" ;;
  *) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Runs it as on a worker: what it has noted, by a line."""
    shutil.copytree(ROOT / "launch", tmp_path / "bert_jax/launch")
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / "bert_jax")
    (tmp_path / "bert_jax/mine.whl").touch()
    names = {f"bin/{name}": OLD for name in ("python3.12", "python3.11", "python3", "python")}
    for name, text in (names | {"uv": UV, "new": NEW}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    noted = tmp_path / "noted"
    monkeypatch.delenv("PYTHON", raising=False)
    variables = {"HOME": str(tmp_path), "STANDINS": str(tmp_path), "NOTED": str(noted)}
    settings = os.environ | variables | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}

    def run(*words) -> list[str]:
        noted.write_text("")
        command = ["bash", "bert_jax/launch/worker.sh", "install", *words]
        ended = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return noted.read_text().splitlines()

    return run


def test_python_comes_with_uv_and_all_is_installed_once(install):
    pip, *uv, installed = install()
    assert pip.endswith("--constraint constraints.txt uv")
    assert uv == ["uv python install 3.12", "uv python find --managed-python 3.12"]
    assert installed.endswith("--constraint constraints.txt --editable .[tpu,gcs]")
    assert install() == []


def test_a_wheel_is_installed_instead_of_the_checkout(install):
    assert install("./mine.whl")[-1].endswith(" ./mine.whl[tpu,gcs]")
    assert install("./mine.whl") == []
    assert install("bert_jax[tpu,gcs]==1.0")[-1].endswith(" bert_jax[tpu,gcs]==1.0")
