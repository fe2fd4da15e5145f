"""The source distribution, and the wheel built from it, work without a checkout."""

import os
import shutil
import subprocess
import sys

import pytest
from kits.paths import ROOT
from kits.small import SMALL, write_corpus

PARTS = ("bert_jax", "configs", "README.md", "LICENSE", "setup.cfg", "pyproject.toml")


def run(*command, cwd, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environment | variables,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.full
@pytest.mark.slow
def test_a_wheel_of_the_sdist_trains_outside_of_the_checkout(tmp_path):
    source = tmp_path / "source"
    installed = str(tmp_path / "installed")
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    pip = ("-m", "pip", "--disable-pip-version-check")
    run("-c", "from setuptools import build_meta; build_meta.build_sdist('..')", cwd=source)
    (sdist,) = tmp_path.glob("bert_jax-*.tar.gz")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, sdist, cwd=tmp_path)
    (wheel,) = tmp_path.glob("bert_jax-*.whl")
    run(*pip, "install", "--no-deps", "--target", installed, wheel, cwd=tmp_path)

    where = "import bert_jax.configs as c, bert_jax.cli as m; print(c.__file__, m.__file__)"
    files = run("-c", where, cwd=tmp_path, PYTHONPATH=installed).split()
    assert len(files) == 2 and all(file.startswith(installed) for file in files)

    write_corpus(tmp_path / "corpus.txt", documents=60)
    settings = SMALL | {"corpus.source": "corpus.txt", "store": "store", "phases.main.steps": 5}
    words = [f"--config.{key}={value}" for key, value in settings.items()]
    command = ("-m", "bert_jax", "pretrain", "--config", "demo", "--workdir", "run", *words)
    run(*command, cwd=tmp_path, PYTHONPATH=installed)
    state = run("-m", "bert_jax", "status", "--workdir", "run", cwd=tmp_path, PYTHONPATH=installed)
    assert state.startswith("done, step 5 of 5")
