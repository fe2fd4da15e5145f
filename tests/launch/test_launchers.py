"""All scripts of launch/: their help, the environment that they create, and the commands of the documentation."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kits.paths import ROOT
from kits.waiting import wait_until

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


# Stands in for Python 3.12 of any name, and for uv. Logs `venv`, and the last argument of each installation with its
# program. $MINOR replaces the 12.
PYTHON = """#!/usr/bin/env bash
minor=12
case "$*" in
  *sys.exit*) exec "$PYTHON_OF_TESTS" -c "import sys; sys.version_info = (3, ${MINOR:-$minor}, 0); $2" ;;
  *base_prefix*) echo "${0%/bin/python}" | grep -q venv && cat .venv/named || echo "${0##*/}" ;;
  *ensurepip*) echo ensurepip >>"$CLOUD/python" ;;
  *'-m venv'*)
    echo venv >>"$CLOUD/python"
    [ -z "${SLOW:-}" ] || while [ ! -e "$CLOUD/go" ]; do touch "$CLOUD/waiting"; /bin/sleep 0.05; done
    mkdir -p .venv/bin
    find .venv -type f -delete
    cp "$0" .venv/bin/python
    echo "${0##*/}" >.venv/named
    ;;
  *' --target '*) echo "pip ${*: -1}" >>"$CLOUD/python"; mkdir "$6/bin"; cp "$0" "$6/bin/uv" ;;
  'venv --quiet'*)
    echo "uv venv $6" >>"$CLOUD/python"
    mkdir -p .venv/bin
    sed "s/^minor=.*/minor=${6#3.}/" "$0" >.venv/bin/python
    chmod +x .venv/bin/python
    ;;
  *'-m uv'*) echo "uv ${*: -1}" >>"$CLOUD/python"; exit "${UV:-0}" ;;
  *'config list') echo "${PIP_SETTINGS:-}" ;;
  *'--version') [ -z "${NO_PIP:-}" ] ;;
  *'-m pip'*) echo "pip ${*: -1}" >>"$CLOUD/python"; exit "${PIP:-0}" ;;
esac
"""


NAMES = ("python3.13", "python3.12", "python3.11", "python3", "python")


def start_environment(cloud, extras: str = "", versions=(), **variables: str) -> subprocess.Popen:
    """Starts `environment EXTRAS` with stand-ins for Python, with pip and uv.

    versions: {name: minor version} of those that are not 3.12.
    """
    shutil.copy(ROOT / "launch/environment.sh", cloud.root / "launch")
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (cloud.root / name).touch()
    directory = cloud.directory / "pythons"
    directory.mkdir(exist_ok=True)
    for name in NAMES:
        python = directory / name
        python.write_text(PYTHON.replace("minor=12", f"minor={dict(versions).get(name, 12)}", 1))
        python.chmod(0o755)
    path = f"{directory}:{os.environ['PATH']}"
    line = f'source launch/environment.sh && environment {extras} && [ "${{PATH%%:*}}" = "$PWD/.venv/bin" ]'
    here = {"PATH": path, "PYTHON_OF_TESTS": sys.executable}
    return cloud.start("bash", "-c", line, **(here | variables))


def make_environment(cloud, extras: str = "", **variables) -> tuple[int, list[str]]:
    """Returns the exit code of `environment EXTRAS`, and what the stand-ins were called for."""
    (cloud.directory / "python").unlink(missing_ok=True)
    process = start_environment(cloud, extras, **variables)
    process.communicate(timeout=60)
    return process.returncode, cloud.lines("python")


def test_an_environment_is_created_once_and_updated_after_changes(cloud):
    failed = ["venv", "pip uv", "pip .[test]"]
    assert make_environment(cloud, "test", PIP="1") == (1, failed)
    # Created again, because the first installation failed.
    assert make_environment(cloud, "test") == (0, ["venv", "pip uv", "uv .[test]"])
    assert make_environment(cloud, "test") == make_environment(cloud, "''") == (0, [])
    assert make_environment(cloud, "test,gcs") == (0, ["pip uv", "uv .[test,gcs]"])
    (cloud.root / "setup.cfg").write_text("more")
    assert make_environment(cloud) == (0, ["pip uv", "uv ."])


@pytest.mark.parametrize(
    "variables, calls",
    [
        (dict(UV="1"), ["venv", "pip uv", "uv .", "pip ."]),
        (dict(PIP_SETTINGS="global.index-url='https://mirror'"), ["venv", "pip ."]),
        (dict(PIP_SETTINGS=":env:.no-index='1'"), ["venv", "pip ."]),
        (dict(PIP_SETTINGS="global.extra-index-url='https://other'"), ["venv", "pip uv", "uv ."]),
    ],
)
def test_pip_installs_where_uv_fails_or_does_not_know_the_index(cloud, variables, calls):
    assert make_environment(cloud, **variables) == (0, calls)


def test_a_python_that_cannot_be_used_is_refused(cloud):
    code, calls = make_environment(cloud, "test", PYTHON="/nowhere/python")
    assert code == 2 and not calls and not (cloud.root / ".venv").exists()

    too_new = {"python3": 14}
    assert make_environment(cloud, versions=too_new, PYTHON="python3") == (2, [])


@pytest.mark.parametrize("name", NAMES)
def test_the_first_python_that_can_be_used_is_taken(cloud, name):
    """Those in front of it are too new. TensorFlow has no wheel for Python 3.14."""
    versions = dict.fromkeys(NAMES[: NAMES.index(name)], 14)
    assert make_environment(cloud, versions=versions) == (0, ["venv", "pip uv", "uv ."])
    assert (cloud.root / ".venv/named").read_text() == f"{name}\n"


@pytest.mark.parametrize("minor", [10, 14])
def test_uv_installs_python_where_all_are_too_old_or_too_new(cloud, minor):
    calls = ["pip uv", "uv venv 3.13", "pip uv", "uv ."]
    assert make_environment(cloud, versions=dict.fromkeys(NAMES, minor)) == (0, calls)


def test_another_python_than_that_of_the_environment_is_refused(cloud):
    assert make_environment(cloud)[0] == 0
    for name, code in (("python3.13", 0), ("python3.11", 2), ("/nowhere/python", 2)):
        assert make_environment(cloud, PYTHON=name) == (code, [])


def make_users_environment(cloud) -> Path:
    """Makes a .venv without launch/. Returns a file in it."""
    file = cloud.root / ".venv/lib/package.py"
    file.parent.mkdir(parents=True)
    file.touch()
    python = cloud.root / ".venv/bin/python"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    return file


def test_an_environment_of_the_user_is_used_and_never_removed(cloud):
    file = make_users_environment(cloud)
    assert make_environment(cloud, "test") == (0, ["pip uv", "uv .[test]"]) and file.exists()
    (cloud.root / "setup.cfg").write_text("more")
    assert make_environment(cloud, NO_PIP="1") == (0, ["ensurepip", "pip uv", "uv ."])
    (cloud.root / "setup.cfg").write_text("more and more")
    for minor in ("10", "14"):
        assert make_environment(cloud, MINOR=minor) == (2, []) and file.exists()
    (cloud.root / ".venv/bin/python").unlink()
    assert make_environment(cloud) == (2, []) and file.exists()


def test_an_environment_is_created_again_after_its_checkout_was_moved(cloud):
    assert make_environment(cloud)[0] == 0
    cloud.root = cloud.root.rename(cloud.directory / "moved")
    assert make_environment(cloud) == (0, ["venv", "pip uv", "uv ."])
    (cloud.root / ".venv/bin/python").unlink()
    assert make_environment(cloud) == (0, ["venv", "pip uv", "uv ."])
    # Another path of the same directory is no move.
    moved, cloud.root = cloud.root, cloud.directory / "link"
    cloud.root.symlink_to(moved)
    assert make_environment(cloud) == (0, [])


@pytest.mark.skipif(not shutil.which("flock"), reason="needs flock")
def test_two_first_starts_at_once_make_one_environment(cloud):
    processes = [start_environment(cloud, "test", SLOW="yes")]
    wait_until((cloud.directory / "waiting").exists)
    processes.append(start_environment(cloud, "test", SLOW="yes"))
    time.sleep(0.5)  # it comes to the lock
    (cloud.directory / "go").touch()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
    assert cloud.lines("python") == ["venv", "pip uv", "uv .[test]"]


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
