"""launch/slice.sh, through launch/tpu.sh: what it takes for a slice's end, and what it leaves alone."""

import signal
import subprocess
import sys
import time

import pytest
from kits.clouds import Cloud, watched

SLICE = ("--name", "slice", "--zone", "us-west4-a")
RUN = (*SLICE, "--type", "v5litepod-16", "--bucket", "gs://b/runs")
PRETRAIN = ("--", "pretrain", "--config", "demo")


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with watched(tmp_path / "cloud", monkeypatch) as make:
        yield make


def slices(here: Cloud) -> list[str]:
    return sorted(path.name for path in (here.place / "slices").glob("*"))


def wait_for(happened) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_another_project_in_the_configuration_makes_no_second_slice(cloud):
    here = cloud()
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="wait")
    wait_for((here.place / "waiting").exists)
    (here.place / "project").write_text("other")
    seen = len(here.calls("--worker=all"))
    wait_for(lambda: len(here.calls("--worker=all")) > seen + 3)
    assert here.run("tpu.sh", "stop", *SLICE, "--project", "there")[0] == 0
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert len(here.calls("create")) == 1 and slices(here) == ["slice"]
    assert said.endswith("delete --name slice --zone us-west4-a --project there\n")


def test_delete_of_nothing_is_no_success(cloud):
    here = cloud()
    here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    for arguments, place in {
        ("--name", "slice", "--zone", "us-west4-b"): "slice in us-west4-b of there",
        ("--name", "slic", "--zone", "us-west4-a"): "slic in us-west4-a of there",
        (*SLICE, "--project", "other"): "slice in us-west4-a of other",
    }.items():
        code, said = here.run("tpu.sh", "delete", *arguments)
        assert (code, said) == (1, f"tpu.sh: no slice {place}\n")
    code, said = here.run("tpu.sh", "delete", "--name", "slice", "--zone", "us-west4-c")
    assert code == 1 and "slice in us-west4-c MAY STILL EXIST" in said
    assert slices(here) == ["slice"]


def test_a_run_that_cannot_be_reached_is_watched_on(cloud):
    """As from a network that lets https out, and no ssh: for longer than any number of tries."""
    here = cloud(failing=list(range(5, 20)))
    process = here.start("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="wait")
    wait_for(lambda: len(here.calls("--worker=all")) > 20)
    assert here.run("tpu.sh", "stop", *SLICE)[0] == 0
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert "ACTIVE, but not reached by ssh since" in said
    assert len(here.calls("create")) == 1 and len(here.words()) == 1
    assert said.endswith("no slice is left\n")


def test_a_run_that_may_be_there_is_not_deleted_unseen(cloud):
    here = cloud(failing=list(range(5, 100)))
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="wait")
    wait_for((here.place / "waiting").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    code, said = here.run("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="wait")
    assert code == 1 and slices(here) == ["slice"]
    assert "a run may be going on there: not deleted" in said and "STILL EXISTS (ACTIVE)" in said


def test_what_fails_on_a_worker_for_sure_ends_it(cloud):
    """There is no room for the checkout: three times, and on no other slice."""
    here = cloud(workers=2)
    (here.place / "image/bert_jax.tar.gz").mkdir()
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 1 and "fails on a worker, with exit code 2" in said
    assert len(here.calls("create")) == 1 and not here.calls("delete") and not here.words()
    assert len(here.calls("--worker=all", "ssh")) == 4 and "STILL EXISTS (ACTIVE)" in said


@pytest.mark.parametrize("state", ["WAITING_FOR_RESOURCES", "PROVISIONING", "CREATING", ""])
def test_a_slice_that_is_yet_to_come_is_waited_for(cloud, state):
    """Also where somebody else asked for it meanwhile: ssh fails, and the state is one of a beginning."""
    here = cloud(failing=[1, 2], slices=[{"states": ["ACTIVE", *[state] * 3, "ACTIVE"]}])
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0, said
    assert len(here.calls("create")) == 1 and not here.calls("delete")


def test_a_request_without_a_state_is_there(cloud):
    here = cloud(slices=[{"states": [""] * 4 + ["ACTIVE"]}])
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert any("STATE_UNSPECIFIED" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0 and "there already" in said
    assert len(here.calls("create")) == 1 and not here.calls("delete")


def test_what_cannot_be_asked_any_more_is_said(cloud):
    """As where a login has expired; until it is renewed."""
    here = cloud(unknown=list(range(4, 12)), failing=list(range(5, 12)))
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="wait")
    assert any("cannot be asked since" in line for line in iter(process.stdout.readline, ""))
    wait_for(lambda: len(here.calls("--worker=all")) > 12)
    assert here.run("tpu.sh", "stop", *SLICE)[0] == 0
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75 and len(here.calls("create")) == 1, said


def test_status_of_what_is_there_says_what_it_costs(cloud):
    here = cloud(failing=[7, 8])
    here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    for action in ("status", "logs"):
        assert "STILL EXISTS (ACTIVE)" in here.run("tpu.sh", action, *SLICE)[1]


@pytest.mark.parametrize("hours, starts", [("long4000", 4), ("75", 2)])
def test_half_an_hour_of_work_gives_back_the_tries(cloud, hours, starts):
    """Of starts with one retry: three that end after more than half an hour each, and no others."""
    here = cloud()
    ends = {"ENDS": f"{hours} {hours} {hours} 1", "AGAIN_TIMES": "0"}
    code, said = here.run("tpu.sh", *RUN, "--retries", "1", *PRETRAIN, **ends)
    assert code == 1 and len(here.words()) == starts, said
    assert ("given up after 1 more starts" in said) == (starts == 2)
    assert "start 2 of" not in said


def test_of_a_test_that_was_killed_nothing_goes_on(cloud):
    """Who sleeps is ended: the loops of the scripts would go round without it, and fast."""
    gone = subprocess.Popen([sys.executable, "-IS", "-c", ""])
    gone.wait()
    environment = cloud().environment() | {"TEST": str(gone.pid)}
    command = ["bash", "-c", "while true; do sleep 60; done"]
    assert subprocess.run(command, env=environment, timeout=60).returncode == -signal.SIGKILL
