"""All scripts of launch/: their help, the environment that they create, and the commands of the documentation."""

import re
import shlex
import shutil
import subprocess

import pytest
from kits.paths import ROOT

SCRIPTS = sorted(ROOT.glob("launch/*.sh")) + [ROOT / "launch/slurm.sbatch"]


def test_every_script_prints_its_usage():
    for path in SCRIPTS:
        if path.stem != "environment":  # sourced by the others
            usage = path.read_text().splitlines()[1]
            assert re.match(f"# usage: (bash|sbatch) .*launch/{path.name}", usage)
        if path.suffix == ".sh" and path.stem != "environment":
            printed = subprocess.check_output(["bash", path, "--help"], text=True)
            assert printed.startswith(f"usage: bash launch/{path.name}") and printed.count("\n") > 5


def test_local_sh_restarts_pretraining_and_then_evaluates(cloud):
    code, output = cloud.run("bash", "launch/local.sh", "mine.py", "run", ENDS="signal9 0 0 0")
    assert code == 0, output
    mine, run = str(cloud.root / "mine.py"), str(cloud.root / "run")
    calls = [call[1:] for call in cloud.calls()]
    assert [call[0] for call in calls] == "pretrain pretrain evaluate".split()
    assert calls[0] == ["pretrain", "--config", mine, "--workdir", run]


def test_local_sh_fills_in_masks_of_the_demo(cloud):
    code, output = cloud.run("bash", "launch/local.sh")
    assert code == 0, output
    assert [call[1] for call in cloud.calls()] == "pretrain evaluate predict".split()


PYTHON = """#!/usr/bin/env bash
echo "${*: -1}" >>"$CLOUD/python"
case "$*" in
  *'-m venv'*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  *'-m pip'*) exit "${PIP:-0}" ;;
esac
"""


def make_environment(cloud, extras: str, **variables: str) -> tuple[int, list[str]]:
    """Returns the exit code, and the last argument of each call of a stand-in for Python, except `-c`."""
    shutil.copy(ROOT / "launch/environment.sh", cloud.root / "launch")
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (cloud.root / name).touch()
    python = cloud.directory / "python3.12"
    python.write_text(PYTHON)
    python.chmod(0o755)
    (cloud.directory / "python").unlink(missing_ok=True)
    line = f'source launch/environment.sh && environment {extras} && [ -n "$PATH" ]'
    code, _ = cloud.run("bash", "-c", line, **({"PYTHON": str(python)} | variables))
    return code, [call for call in cloud.lines("python") if not call.startswith("import")]


def test_an_environment_is_created_once_and_updated_after_changes(cloud):
    assert make_environment(cloud, "test", PIP="1") == (1, [".venv", ".[test]"])
    # Created again, because the first installation failed.
    assert make_environment(cloud, "test") == (0, [".venv", ".[test]"])
    assert make_environment(cloud, "test") == make_environment(cloud, "''") == (0, [])
    assert make_environment(cloud, "test,gcs") == (0, [".[test,gcs]"])
    (cloud.root / "setup.cfg").write_text("more")
    assert make_environment(cloud, "''") == (0, ["."])


def test_a_python_that_cannot_be_used_is_refused(cloud):
    code, calls = make_environment(cloud, "test", PYTHON="/nowhere/python")
    assert code == 2 and not calls and not (cloud.root / ".venv").exists()


def documented() -> list[str]:
    """Returns every command of the documentation that starts a script of launch/, as one line."""
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    text = re.sub(r"\\\n\s*", "", "\n".join(texts))
    commands = re.findall(r"^    ((?:bash|sbatch) .*launch/.*)$", text, re.M)
    return [shlex.join(shlex.split(command, comments=True)) for command in commands]


def test_the_commands_of_the_documentation_run(cloud):
    commands = documented()
    assert len({re.search(r"launch/(\w+)\.", command)[1] for command in commands}) > 5
    for command in commands:
        command = command.replace("bert_base ...", "bert_base --workdir gs://b/w")
        code, output = cloud.run(*shlex.split(command), GPUS="one")
        assert code == 0, (command, output)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs the extra test, on PATH")
def test_shellcheck_finds_nothing():
    standins = sorted(ROOT.glob("tests/standins/*"))
    command = ["shellcheck", "--external-sources", *SCRIPTS, *standins, ".ci/run"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
