"""launch/tpu.sh with a stand-in for gcloud: the commands that it runs, and that only `delete` deletes a slice."""

import pytest
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
    assert cloud.lines("extras") == ["tpu"] * 2
    (created,) = gcloud_calls(cloud, "create")
    options = {"--accelerator-type=v5litepod-16", "--version=v2-alpha-tpuv5-lite"}
    assert options | {"--spot", "--service-account=me", "--quiet"} <= set(created)
    copied = [path.name for path in cloud.directory.glob("slices/*/slice/worker-1/bert_jax/*")]
    assert sorted(copied) == [".gitignore", "launch", "mine.py"]


def test_delete_deletes_only_the_named_slice(cloud):
    for place in ("us-west4-a/slice", "us-west4-a/other", "us-west4-b/slice"):
        (cloud.directory / "slices" / place).mkdir(parents=True)
    left = ["slices/us-west4-a/other", "slices/us-west4-b/slice"]
    assert run_action(cloud, "delete")[0] == 0 and slices(cloud) == left
    code, _ = run_action(cloud, "delete")
    assert code == 1 and slices(cloud) == left


def test_status_log_and_stop_keep_the_slice(cloud):
    code, output = cloud.run(*RUN, *PRETRAIN, ENDS="wait")
    removal = output.splitlines()[-1].partition(": ")[2]
    assert code == 0 and removal == "bash launch/tpu.sh delete --name slice --zone us-west4-a"
    wait_until((cloud.directory / "waiting").exists)
    code, output = run_action(cloud, "status")
    assert code == 0 and "READY" in output and ": running\nthis run ends by wait" in output
    code, output = cloud.run(*RUN, *PRETRAIN)
    assert code != 0 and "a run is active" in output and len(gcloud_calls(cloud, "create")) == 1
    assert run_action(cloud, "stop")[0] == 0
    wait_until(lambda: ": not running" in run_action(cloud, "status")[1])
    assert cloud.lines("terminated") == ["yes"] and run_action(cloud, "log")[0] == 0
    code, output = cloud.run(*RUN, *PRETRAIN, ENDS="0")  # the slice is used again
    assert code == 0 and slices(cloud) == ["slices/us-west4-a/slice"], output
    assert cloud.run(*removal.split())[0] == 0 and slices(cloud) == []


def test_a_copy_to_workers_that_are_not_reachable_yet_is_retried(cloud):
    code, output = cloud.run(*RUN, *PRETRAIN, REACHED="3")
    assert code == 0 and cloud.lines("slept") == ["15", "30"], output


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


WRONG = {
    "--type": (*RUN[:-2], *PRETRAIN),
    "--type v9-8": (*RUN[:-1], "v9-8", *PRETRAIN),
    "--name": ("bash", "launch/tpu.sh", "delete", "--zone", "us-west4-a"),
    "--zone": ("bash", "launch/tpu.sh", "delete", "--name", "slice"),
    "--spot": ("bash", "launch/tpu.sh", "delete", *SLICE, "--spot"),
    "--workdir": (*RUN, "--", "pretrain", "--config", "mine.py"),
    "hidden.py": (*RUN, "--", "prepare", "--config=hidden.py"),
    "hidden.txt": (*RUN, *PRETRAIN, "--config.tokenizer.path=hidden.txt"),
    "nothing to run": RUN,
}


@pytest.mark.parametrize("named", WRONG)
def test_bad_input_is_named_in_one_line_before_any_call_of_gcloud(cloud, named):
    for name in ("hidden.py", "hidden.txt"):
        (cloud.root / name).write_text("")
    code, output = cloud.run(*WRONG[named])
    assert code == 2 and output.count("\n") == 1 and named in output, output
    assert not cloud.calls("gcloud")
