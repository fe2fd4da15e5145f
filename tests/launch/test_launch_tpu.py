"""launch/tpu.sh against a stand-in of gcloud: what it asks for, starts and shows, and what alone it deletes."""

import pytest
from kits.waiting import wait_until

SLICE = ("--name", "slice", "--zone", "us-west4-a")
RUN = ("bash", "launch/tpu.sh", *SLICE, "--type", "v5litepod-16")
PRETRAIN = ("--", "pretrain", "--config", "mine.py", "--workdir", "gs://b/run")


def do(cloud, action: str) -> tuple[int, str]:
    return cloud.run("bash", "launch/tpu.sh", action, *SLICE)


def slices(cloud) -> list[str]:
    """What is left in the cloud."""
    return sorted(str(path.relative_to(cloud.place)) for path in cloud.place.glob("slices/*/*"))


def calls(cloud, verb: str) -> list[list[str]]:
    return [words for words in cloud.words("gcloud") if words[3] == verb]


def test_a_run_on_all_workers(cloud):
    words = ["two  words ", "it's", 'a "b"', "$HOME", "`id`", "a\\b\\\\", "*", "", "ü\n\nx", "~"]
    command = (*RUN, "--spot", "--service-account=me", *PRETRAIN, *words)
    code, said = cloud.run(*command, WORKERS="2")
    assert code == 0, said
    wait_until(lambda: len(cloud.words()) == 2)
    assert sorted(cloud.words()) == [
        [host, *PRETRAIN[1:], *words] for host in ("worker-0", "worker-1")
    ]
    assert cloud.lines("extras") == ["tpu"] * 2
    (created,) = calls(cloud, "create")
    asked = {"--accelerator-type=v5litepod-16", "--version=v2-alpha-tpuv5-lite"}
    assert asked | {"--spot", "--service-account=me", "--quiet"} <= set(created)
    copied = [path.name for path in cloud.place.glob("slices/*/slice/worker-1/bert_jax/*")]
    assert sorted(copied) == [".gitignore", "launch", "mine.py"]


def test_nothing_is_deleted_that_is_not_named(cloud):
    for place in ("us-west4-a/slice", "us-west4-a/other", "us-west4-b/slice"):
        (cloud.place / "slices" / place).mkdir(parents=True)
    left = ["slices/us-west4-a/other", "slices/us-west4-b/slice"]
    assert do(cloud, "delete")[0] == 0 and slices(cloud) == left
    code, _ = do(cloud, "delete")
    assert code == 1 and slices(cloud) == left


def test_what_goes_on_is_shown_stopped_and_never_deleted(cloud):
    code, said = cloud.run(*RUN, *PRETRAIN, ENDS="wait")
    removal = said.splitlines()[-1].partition(": ")[2]
    assert code == 0 and removal == "bash launch/tpu.sh delete --name slice --zone us-west4-a"
    wait_until((cloud.place / "waiting").exists)
    code, said = do(cloud, "status")
    assert code == 0 and "READY" in said and ": running\nthis run says wait" in said
    code, said = cloud.run(*RUN, *PRETRAIN)
    assert code != 0 and "a run is active" in said and len(calls(cloud, "create")) == 1
    assert do(cloud, "stop")[0] == 0
    wait_until(lambda: ": not running" in do(cloud, "status")[1])
    assert cloud.lines("told") == ["told"] and do(cloud, "log")[0] == 0
    code, said = cloud.run(*RUN, *PRETRAIN, ENDS="0")  # it goes on
    assert code == 0 and slices(cloud) == ["slices/us-west4-a/slice"], said
    assert cloud.run(*removal.split())[0] == 0 and slices(cloud) == []


def test_a_worker_that_cannot_be_reached_yet_is_tried_again(cloud):
    code, said = cloud.run(*RUN, *PRETRAIN, REACHED="3")
    assert code == 0 and cloud.lines("slept") == ["15", "30"], said


def test_where_workers_are_not_reached_at_all_it_says_what_costs_money(cloud):
    code, said = cloud.run(*RUN, *PRETRAIN, REACHED="9")
    assert code == 1 and "delete --name slice" in said and slices(cloud) and not cloud.words()


def test_a_slice_that_is_not_ready_is_left_alone(cloud):
    place = cloud.place / "slices/us-west4-a/slice"
    place.mkdir(parents=True)
    (place / "state").write_text("PREEMPTED\n")
    code, said = cloud.run(*RUN, *PRETRAIN)
    assert code == 1 and "PREEMPTED" in said and len(cloud.words("gcloud")) == 1


def test_a_dry_run_runs_nothing(cloud):
    code, said = cloud.run(*RUN, "--spot", "--dry-run", *PRETRAIN, "it's")
    assert code == 0 and not cloud.words("gcloud")
    assert "tpu-vm create slice" in said and r"it\'s" in said


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


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_a_line_before_anything_is_done(cloud, what):
    for name in ("hidden.py", "hidden.txt"):
        (cloud.root / name).write_text("")
    code, said = cloud.run(*WRONG[what])
    assert code == 2 and said.count("\n") == 1 and what in said and not cloud.words("gcloud"), said
