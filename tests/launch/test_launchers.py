"""What all scripts of launch/ share: help, the environment, the commands of the documentation."""

import re
import shlex
import shutil
import subprocess

import pytest
from kits.places import ROOT

SCRIPTS = sorted(ROOT.glob("launch/*.sh")) + [ROOT / "launch/slurm.sbatch"]


def test_every_script_says_what_it_is_for():
    for path in SCRIPTS:
        if path.stem != "environment":  # sourced by the others
            usage = path.read_text().splitlines()[1]
            assert re.match(f"# usage: (bash|sbatch) .*launch/{path.name}", usage)
        if path.suffix == ".sh" and path.stem != "environment":
            told = subprocess.check_output(["bash", path, "--help"], text=True)
            assert told.startswith(f"usage: bash launch/{path.name}") and told.count("\n") > 5


def test_local_pretrains_again_and_goes_on(cloud):
    code, said = cloud.run("bash", "launch/local.sh", "mine.py", "run", ENDS="0 signal9 0 0 0")
    assert code == 0, said
    mine, run = str(cloud.root / "mine.py"), str(cloud.root / "run")
    starts = [words[1:] for words in cloud.words()]
    assert [words[0] for words in starts] == "prepare pretrain pretrain evaluate predict".split()
    assert starts[1] == ["pretrain", "--config", mine, "--workdir", run]
    assert cloud.lines("settings") == ["", "yes", "yes", "yes", "yes"]


PYTHON = """#!/usr/bin/env bash
echo "${*: -1}" >>"$CLOUD/python"
case "$*" in
  *'-m venv'*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  *'-m pip'*) exit "${PIP:-0}" ;;
esac
"""


def make_environment(cloud, extras: str, **variables: str) -> tuple[int, list[str]]:
    """The exit code, and the last word of every call of a stand-in for Python but the first questions."""
    shutil.copy(ROOT / "launch/environment.sh", cloud.root / "launch")
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (cloud.root / name).touch()
    python = cloud.place / "python3.12"
    python.write_text(PYTHON)
    python.chmod(0o755)
    (cloud.place / "python").unlink(missing_ok=True)
    line = f'source launch/environment.sh && environment {extras} && [ -n "$PATH" ]'
    code, _ = cloud.run("bash", "-c", line, **({"PYTHON": str(python)} | variables))
    return code, [words for words in cloud.lines("python") if not words.startswith("import")]


def test_an_environment_is_made_once_and_installs_what_has_changed(cloud):
    assert make_environment(cloud, "test", PIP="1") == (1, [".venv", ".[test]"])
    assert make_environment(cloud, "test") == (0, [".venv", ".[test]"])  # anew: it was not finished
    assert make_environment(cloud, "test") == make_environment(cloud, "''") == (0, [])
    assert make_environment(cloud, "test,gcs") == (0, [".[test,gcs]"])
    (cloud.root / "setup.cfg").write_text("more")
    assert make_environment(cloud, "''") == (0, ["."])


def test_a_python_that_does_not_do_is_refused(cloud):
    code, calls = make_environment(cloud, "test", PYTHON="/nowhere/python")
    assert code == 2 and not calls and not (cloud.root / ".venv").exists()


def documented() -> list[str]:
    """Every command of the documentation that starts a script of launch/, as one line."""
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    text = re.sub(r"\\\n\s*", "", "\n".join(texts))
    commands = re.findall(r"^    ((?:bash|sbatch) .*launch/.*)$", text, re.M)
    return [shlex.join(shlex.split(command, comments=True)) for command in commands]


def test_the_scripts_take_the_commands_of_the_documentation(cloud):
    commands = documented()
    assert len({re.search(r"launch/(\w+)\.", command)[1] for command in commands}) > 5
    for command in commands:
        command = command.replace("bert_base ...", "bert_base --workdir gs://b/w")
        code, said = cloud.run(*shlex.split(command), GPUS="one")
        assert code == 0, (command, said)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs the extra test, on PATH")
def test_shellcheck_finds_nothing():
    standins = sorted(ROOT.glob("tests/standins/*"))
    command = ["shellcheck", "--external-sources", *SCRIPTS, *standins, ".ci/run"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
