"""launch/tpu.sh with a stand-in for gcloud: the commands that it runs, and that only `delete` deletes a slice."""

import os
import runpy
import signal
import subprocess
import sys

import pytest
from kits.paths import ROOT
from kits.waiting import wait_until

SLICE = ("--name", "slice", "--zone", "us-west4-a")
RUN = ("bash", "launch/tpu.sh", *SLICE, "--type", "v5litepod-16")
PRETRAIN = ("--", "pretrain", "--config", "mine.py", "--workdir", "gs://b/run")


def run_action(cloud, action: str) -> tuple[int, str]:
    return cloud.run("bash", "launch/tpu.sh", action, *SLICE)


def slices(cloud) -> list[str]:
    """Returns the slices that exist."""
    paths = cloud.directory.glob("slices/*/*")
    return sorted(str(path.relative_to(cloud.directory)) for path in paths)


def gcloud_calls(cloud, verb: str) -> list[list[str]]:
    return [call for call in cloud.calls("gcloud") if call[3] == verb]


def test_all_workers_start_bert_jax_with_its_arguments(cloud):
    texts = ["two  words ", "it's", 'a "b"', "$HOME", "`id`", "a\\b\\\\", "*", "", "ü\n\nx", "~"]
    command = (*RUN, "--spot", "--service-account=me", *PRETRAIN, *texts)
    code, output = cloud.run(*command, WORKERS="2")
    assert code == 0, output
    wait_until(lambda: len(cloud.calls()) == 2)
    assert sorted(cloud.calls()) == [[f"worker-{n}", *PRETRAIN[1:], *texts] for n in (0, 1)]
    assert cloud.lines("extras") == ["", "tpu", "tpu"]  # here, and on the workers
    (created,) = gcloud_calls(cloud, "create")
    options = {"--accelerator-type=v5litepod-16", "--version=v2-alpha-tpuv5-lite"}
    assert options | {"--spot", "--service-account=me", "--quiet"} <= set(created)
    copied = [path.name for path in cloud.directory.glob("slices/*/slice/worker-1/bert_jax/*")]
    assert sorted(copied) == [".files", ".gitignore", "launch", "mine.py"]


def test_delete_deletes_only_the_named_slice(cloud):
    for place in ("us-west4-a/slice", "us-west4-a/other", "us-west4-b/slice"):
        (cloud.directory / "slices" / place).mkdir(parents=True)
    left = ["slices/us-west4-a/other", "slices/us-west4-b/slice"]
    assert run_action(cloud, "delete")[0] == 0 and slices(cloud) == left
    code, _ = run_action(cloud, "delete")
    assert code == 1 and slices(cloud) == left


@pytest.mark.slow
def test_status_and_stop_keep_the_slice(cloud):
    code, output = cloud.run(*RUN, *PRETRAIN, ENDS="wait")
    removal = output.splitlines()[-1].partition(": ")[2]
    assert code == 0 and removal == "bash launch/tpu.sh delete --name slice --zone us-west4-a"
    wait_until((cloud.directory / "waiting").exists)
    code, output = run_action(cloud, "status")
    assert code == 0 and "READY" in output and ": running\nthis run ends by wait" in output
    other = (*RUN, *PRETRAIN, "--config.seed=1")
    assert cloud.run(*other)[0] == 1 and len(gcloud_calls(cloud, "create")) == 1
    assert len(cloud.calls()) == 1 and not cloud.lines("terminated")
    assert run_action(cloud, "stop")[0] == 0
    wait_until(lambda: ": not running" in run_action(cloud, "status")[1])
    # Twice where again.sh, which is in the same process group, passes the signal on before the run ends.
    assert set(cloud.lines("terminated")) == {"yes"}
    code, output = cloud.run(*RUN, *PRETRAIN, ENDS="0")  # the slice is used again
    assert code == 0 and slices(cloud) == ["slices/us-west4-a/slice"], output
    assert cloud.run(*removal.split())[0] == 0 and slices(cloud) == []


def test_a_copy_to_workers_that_are_not_reachable_yet_is_retried(cloud):
    code, output = cloud.run(*RUN, *PRETRAIN, REACHED="3")
    assert code == 0 and cloud.lines("slept") == ["30", "30"], output


def test_if_workers_stay_unreachable_the_delete_command_is_printed(cloud):
    code, output = cloud.run(*RUN, *PRETRAIN, REACHED="9")
    assert code == 1 and "delete --name slice" in output and slices(cloud) and not cloud.calls()


def test_a_slice_that_is_not_ready_is_not_used(cloud):
    place = cloud.directory / "slices/us-west4-a/slice"
    place.mkdir(parents=True)
    (place / "state").write_text("PREEMPTED\n")
    code, output = cloud.run(*RUN, *PRETRAIN)
    assert code == 1 and "PREEMPTED" in output and len(cloud.calls("gcloud")) == 1


def test_a_dry_run_runs_nothing(cloud):
    code, output = cloud.run(*RUN, "--spot", "--dry-run", *PRETRAIN, "it's")
    assert code == 0 and not cloud.calls("gcloud")
    assert "tpu-vm create slice" in output and r"it\'s" in output
    assert "started" not in output and "costs" not in output


def worker_file(cloud, name: str):
    return cloud.directory / "slices/us-west4-a/slice/worker-0/bert_jax" / name


def git(cloud, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=cloud.root, check=True, capture_output=True)


@pytest.mark.slow
def test_a_command_that_is_active_goes_on_and_other_workers_start(cloud):
    """One of two workers cannot install; the same command starts it, and again starts nothing."""
    command = (*RUN, *PRETRAIN)
    assert cloud.run(*command, WORKERS="2", ENDS="wait", INSTALL="worker-1")[0] == 1
    for _ in range(2):
        code, output = cloud.run(*command, ENDS="wait")
        assert code == 0, output
        wait_until(lambda: len(cloud.calls()) == 2)
        assert sorted(call[0] for call in cloud.calls()) == ["worker-0", "worker-1"]
    assert run_action(cloud, "stop")[0] == 0
    wait_until(lambda: run_action(cloud, "status")[1].count(": not running") == 2)


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [True, False])
def test_two_starts_of_a_command_are_one_run(cloud, interrupted):
    """The second start comes during the installation of the first one, which may have lost its terminal."""
    assert cloud.run(*RUN, *PRETRAIN, ENDS="0")[0] == 0
    wait_until(lambda: ": not running" in run_action(cloud, "status")[1])
    before = len(cloud.calls())
    first = cloud.start("setsid", *RUN, *PRETRAIN, ENDS="wait", INSTALL="wait")
    wait_until((cloud.directory / "installing").exists)
    if interrupted:
        os.killpg(first.pid, signal.SIGKILL)
    code, output = cloud.run(*RUN, *PRETRAIN, ENDS="wait")
    (cloud.directory / "go").touch()
    first.communicate()
    assert code == 0, output
    wait_until(lambda: len(cloud.calls()) > before)
    assert run_action(cloud, "stop")[0] == 0
    wait_until(lambda: ": not running" in run_action(cloud, "status")[1])
    assert len(cloud.calls()) == before + 1


def test_stop_ends_an_installation(cloud):
    first = cloud.start(*RUN, *PRETRAIN, INSTALL="wait")
    wait_until((cloud.directory / "installing").exists)
    wait_until((cloud.directory / "slices/us-west4-a/slice/worker-0/bert_jax.pid").exists)
    assert run_action(cloud, "stop")[0] == 0
    first.communicate(timeout=30)
    assert first.returncode != 0 and ": not running" in run_action(cloud, "status")[1]
    (cloud.directory / "go").touch()
    assert not cloud.calls()


def test_a_file_that_was_deleted_here_is_deleted_on_the_workers(cloud):
    names = ["gone.py", "folder/gone.py", "-f", "ü gone.py"]
    for name in names:
        (cloud.root / name).parent.mkdir(exist_ok=True)
        (cloud.root / name).touch()
    git(cloud, "add", ".")
    assert cloud.run(*RUN, *PRETRAIN)[0] == 0
    assert all(worker_file(cloud, name).exists() for name in names)
    made_there = worker_file(cloud, "stores/mine")
    made_there.mkdir(parents=True)
    for name in names:
        (cloud.root / name).unlink()
    wait_until(lambda: ": not running" in run_action(cloud, "status")[1])
    assert cloud.run(*RUN, *PRETRAIN)[0] == 0
    assert not any(worker_file(cloud, name).exists() for name in names)
    assert made_there.exists() and worker_file(cloud, "mine.py").exists()


def test_links_become_files_and_environments_stay_here(cloud):
    outside = cloud.directory / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "mine.py").write_text("outside")
    (cloud.root / "link.py").symlink_to(outside / "mine.py")
    (cloud.root / "runs").symlink_to(outside)
    for name in ("sky", "tools/env"):
        for file in ("bin/python", "lib/python3/library.py", "pyvenv.cfg"):
            (cloud.root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (cloud.root / name / file).touch()
    code, output = cloud.run(*RUN, *PRETRAIN, "--config", "link.py")
    assert code == 0 and worker_file(cloud, "link.py").read_text() == "outside", output
    assert not worker_file(cloud, "link.py").is_symlink()
    assert not any(worker_file(cloud, name).exists() for name in ("sky", "tools/env", "runs"))


@pytest.mark.parametrize("path", ["configs/mine.py", "./configs//mine.py", "new.py"])
def test_a_config_may_be_any_file_of_the_checkout(cloud, path):
    """Committed, or new; the pathspecs of git 2.39 find no single file."""
    (cloud.root / "configs").mkdir()
    (cloud.root / "configs/mine.py").touch()
    git(cloud, "add", "configs")
    (cloud.root / "new.py").touch()
    code, output = cloud.run(*RUN, "--", "pretrain", "--config", path, "--workdir=gs://b/w")
    assert code == 0, output


@pytest.mark.parametrize("form", ["--{}={}", "--{} {}"])
def test_options_may_have_an_equals_sign(cloud, form):
    options = dict(name="slice", zone="us-west4-a", project="mine")
    place = [word for pair in options.items() for word in form.format(*pair).split()]
    code, output = cloud.run("bash", "launch/tpu.sh", *place, "--type=v6e-8", *PRETRAIN)
    removal = output.splitlines()[-1].partition(": ")[2].split()
    assert code == 0 and cloud.run(*removal)[0] == 0 and not slices(cloud), output
    assert all("--project=mine" in call for call in cloud.calls("gcloud"))


def test_a_slice_that_was_not_created_costs_nothing(cloud):
    code, output = cloud.run(*RUN, *PRETRAIN, NONE_LEFT="yes")
    assert code == 1 and "costs" not in output


WRONG = {
    "--type": (*RUN[:-2], *PRETRAIN),
    "--type ": (*RUN[:-2], "--version=mine", *PRETRAIN),
    "--type v9-8": (*RUN[:-1], "v9-8", *PRETRAIN),
    "--name": ("bash", "launch/tpu.sh", "delete", "--zone", "us-west4-a"),
    "--name ''": ("bash", "launch/tpu.sh", "delete", "--name=", "--zone=us-west4-a"),
    "--zone": ("bash", "launch/tpu.sh", "delete", "--name", "slice"),
    "--spot": ("bash", "launch/tpu.sh", "delete", *SLICE, "--spot"),
    "--project": (*RUN, "--project"),
    "pretrain": (*RUN, *PRETRAIN[1:]),
    "stop": ("bash", "launch/tpu.sh", "stop", *SLICE, *PRETRAIN),
}


@pytest.mark.parametrize("named", WRONG)
def test_bad_input_is_named_in_one_line_before_any_call_of_gcloud(cloud, named):
    code, output = cloud.run(*WRONG[named])
    assert code == 2 and output.count("\n") == 1 and named in output, output
    assert not cloud.calls("gcloud")


@pytest.mark.parametrize("reason", ["no repository", "ignored", "owner"])
def test_a_checkout_that_git_does_not_list_is_refused(cloud, reason):
    variables = {}
    if reason == "owner":
        variables["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    else:
        (cloud.root / ".git").rename(cloud.directory / "git")
    if reason == "ignored":
        subprocess.run(["git", "init", "-q", cloud.directory], check=True)
        (cloud.directory / ".gitignore").write_text("check*\n")
    code, output = cloud.run(*RUN, *PRETRAIN, **variables)
    named = dict(owner="safe.directory", ignored="ignores").get(reason, "not a git repository")
    assert code == 2 and output.count("\n") == 1 and named in output, output
    assert not cloud.calls("gcloud")


STORE = "--config.store=gs://b/s"
W = "--workdir gs://b/w"
# {arguments of bert-jax: whether a slice of several hosts can run them}, with the files of this repository
COMMANDS = {
    "": False,
    f"bert-jax pretrain --config demo {STORE} {W}": False,
    "evaluate --model runs/mine": False,
    f"prepare --config demo {STORE}": False,
    "pretrain --help": False,
    f"pretrain --config demo {STORE}": False,
    f"pretrain --config demo {STORE} {W}": True,
    f"pretrain --config demo {STORE} --workdir=gs://b/w --config.train.micro_batches=2": True,
    f"pretrain --confg demo {STORE} {W}": False,
    f"pretrain --config demmo {STORE} {W}": False,
    f"pretrain --config {{root}}/configs/demo.py {STORE} {W}": False,
    f"pretrain --config ../none.py {STORE} {W}": False,
    f"pretrain --config demo {STORE} {W} --workdir runs/w": False,
    f"pretrain --config demo {STORE} --workdir /gs:/w": False,
    f"pretrain --config demo {STORE} --workdir gs://": False,
    f"pretrain --config demo {STORE} {W} --config.trian.micro_batches=2": False,
    f"pretrain --config demo {STORE} {W} --config.phases.main.steps=-1": False,
    f"pretrain --config demo {STORE} {W} --config.corpus.source=/data/*.txt": False,
    f"pretrain --config demo {STORE} {W} --config.continue_from=runs/none@5": False,
    f"pretrain --config demo {W} --config.store=/data/s": False,
    f"pretrain --config demo {W} --config.store=none": False,
    "benchmark --config demo": True,
    "benchmark --config demo --config.tokenizer.path=setup.cfg": True,
    "benchmark --config demo --config.tokenizer.path=gs://b/vocab.txt": True,
    "benchmark --config demo --config.tokenizer.path={root}/setup.cfg": False,
    "benchmark --config demo --config.tokenizer.path=~/setup.cfg": False,
    "benchmark --config demo --config.init_from=runs/none": False,
    f"finetune --config configs/glue.py:all {W} --config.task.data=configs": True,
    f"finetune --config configs/glue.py:all {W} --config.task.data=hf:some/set": True,
    f"finetune --config configs/glue.py:all {W} --config.task.data=none": False,
    f"finetune --config configs/glue.py:no {W} --config.task.data=configs": False,
}


def check_command(monkeypatch, slice_type: str, command: str) -> int:
    """Returns the exit code of launch/check_command.py in the root of the repository."""
    monkeypatch.setattr(sys, "argv", ["check_command.py", slice_type, *command.split()])
    monkeypatch.chdir(ROOT)
    try:
        runpy.run_path(str(ROOT / "launch/check_command.py"))
    except SystemExit as error:
        return error.code
    return 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_checked_as_bert_jax_reads_it(monkeypatch, capsys, command):
    code = check_command(monkeypatch, "v5litepod-16", command.format(root=ROOT))
    assert code == (0 if COMMANDS[command] else 2)
    assert command == "pretrain --help" or capsys.readouterr().err.count("\n") == (code > 0)


@pytest.mark.parametrize(
    "source, is_right", [("pydocs", True), ("configs/*.py", True), ("no", False)]
)
def test_one_host_may_prepare_text_that_is_copied(monkeypatch, source, is_right):
    command = f"pretrain --config demo {W} --config.store=none --config.corpus.source={source}"
    assert check_command(monkeypatch, "v5litepod-8", command) == (0 if is_right else 2)


# The second one is not copied.
WRONG_CONFIGS = {
    "mine.py": "from bert_jax.configs import demo\nget_config = demo.get_confg\n",
    "hidden.py": "from bert_jax.configs import demo\nget_config = demo.get_config\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_CONFIGS)
def test_a_wrong_config_is_refused_before_any_call_of_gcloud(cloud, name):
    (cloud.root / name).write_text(WRONG_CONFIGS[name])
    command = ("--", "pretrain", "--config", name, "--workdir=gs://b/w", STORE)
    code, output = cloud.run(*RUN, *command, REAL=sys.executable)
    assert code == 2 and output.count("\n") == 1 and name in output, output
    assert not cloud.calls("gcloud")
