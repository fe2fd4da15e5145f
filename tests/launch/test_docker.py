"""Properties of docker/ that can be checked without building the images."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from kits.paths import ROOT
from setuptools.config import setupcfg

FILES = sorted(ROOT.glob("docker/*.Dockerfile"))
EXTRAS = {"tpu.Dockerfile": ["tpu", "gcs"], "gpu.Dockerfile": ["gpu", "gcs"]}
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


@pytest.mark.skipif(not shutil.which("hadolint"), reason="needs the extra test, on PATH")
@each_file
def test_hadolint_finds_nothing(file):
    subprocess.run(["hadolint", str(file)], check=True)


@each_file
def test_copied_files_exist_and_the_user_is_not_root(file):
    last = file.read_text().split("FROM ")[-1]
    assert int(re.search("^USER ([0-9]+)$", last, re.M)[1]) > 0
    included = (ROOT / ".dockerignore").read_text().splitlines()
    for names in re.findall("^COPY (?!--from)(.*) [^ ]+$", file.read_text(), re.M):
        for name in names.split():
            assert (ROOT / name).exists() and f"!{name.partition('/')[0]}" in included


@each_file
def test_the_layer_of_dependencies_has_the_requirements_of_setup_cfg(file):
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
def test_an_image_starts_bert_jax_through_tini_and_again_sh(file, cloud):
    entry = json.loads(re.search("^ENTRYPOINT (.*)$", file.read_text(), re.M)[1])
    assert entry[:3] == ["tini", "--", "bash"]
    script = entry[3].replace("/opt/launch", str(ROOT / "launch"))
    code, _ = cloud.run("bash", script, *entry[4:], "a b", "it's", ENDS="75 0")
    assert code == 0 and cloud.calls() == [["laptop", "a b", "it's"]] * 2
    assert ("xla_gpu_deterministic_ops" in file.read_text()) == (file.name == "gpu.Dockerfile")
