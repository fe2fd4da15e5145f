"""The images of docker/, as far as they can be told without building them."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from kits.places import ROOT
from setuptools.config import setupcfg

FILES = sorted(ROOT.glob("docker/*.Dockerfile"))
EXTRAS = {"tpu.Dockerfile": ["tpu", "gcs"], "gpu.Dockerfile": ["gpu", "gcs"]}
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


@pytest.mark.skipif(not shutil.which("hadolint"), reason="needs the extra test, on PATH")
@each_file
def test_hadolint_finds_nothing(file):
    subprocess.run(["hadolint", str(file)], check=True)


@each_file
def test_an_image_copies_what_is_there_and_is_not_root(file):
    last = file.read_text().split("FROM ")[-1]
    assert int(re.search("^USER ([0-9]+)$", last, re.M)[1]) > 0
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for names in re.findall("^COPY (?!--from)(.*) [^ ]+$", file.read_text(), re.M):
        for name in names.split():
            assert (ROOT / name).exists() and f"!{name.partition('/')[0]}" in kept


@each_file
def test_its_layer_of_dependencies_has_all_of_setup(file):
    extras = re.search("requirements.py (.*) >", file.read_text())[1].split()
    assert extras == EXTRAS[file.name]
    command = [sys.executable, str(ROOT / "docker/requirements.py"), *extras]
    printed = subprocess.check_output(command, cwd=ROOT, text=True)
    options = setupcfg.read_configuration(ROOT / "setup.cfg")["options"]
    wanted = [*options["install_requires"]]
    for extra in extras:
        wanted += options["extras_require"][extra]
    assert [x for x in printed.splitlines() if x and not x.startswith("#")] == wanted


@each_file
def test_what_it_starts_gets_its_words_and_flags(file, tmp_path):
    entry = json.loads(re.search("^ENTRYPOINT (.*)$", file.read_text(), re.M)[1])
    assert entry[:2] == ["tini", "--"]
    entry = [word.replace("/opt/launch", str(ROOT / "launch")) for word in entry[2:]]
    names = ("XLA_FLAGS", "TPU_MIN_LOG_LEVEL")
    program = tmp_path / "bert-jax"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$XLA_FLAGS" "$TPU_MIN_LOG_LEVEL" "$@"\n')
    program.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if name not in names}
    variables["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    told = subprocess.check_output([*entry, "a b", "it's"], env=variables, text=True)
    flags = ["", "2"] if file.name == "tpu.Dockerfile" else ["--xla_gpu_deterministic_ops=true", ""]
    assert told.splitlines() == [*flags, "a b", "it's"]
