"""launch/worker.sh install, on a machine whose Python is too old: what it asks of pip and of uv."""

import os
import shutil
import subprocess
import sys

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


def test_python_comes_with_uv_and_all_is_installed_once(tmp_path):
    shutil.copytree(ROOT / "launch", tmp_path / "bert_jax/launch")
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / "bert_jax")
    names = {f"bin/{name}": OLD for name in ("python3.12", "python3.11", "python3", "python")}
    for name, text in (names | {"uv": UV, "new": NEW}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    variables = {"HOME": str(tmp_path), "STANDINS": str(tmp_path), "NOTED": f"{tmp_path}/noted"}
    settings = os.environ | variables | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    settings.pop("PYTHON", None)

    def install(*words) -> list[str]:
        (tmp_path / "noted").write_text("")
        command = ["bash", "bert_jax/launch/worker.sh", "install", *words]
        subprocess.run(command, cwd=tmp_path, env=settings, check=True)
        return (tmp_path / "noted").read_text().splitlines()

    pip, *uv, installed = install()
    assert pip.endswith(" uv") and all(line.startswith("uv python ") for line in uv)
    assert installed.endswith("--constraint constraints.txt --editable .[tpu,gcs]")
    assert install() == []
    assert install("bert_jax[tpu,gcs]==1.0")[-1].endswith(" bert_jax[tpu,gcs]==1.0")
