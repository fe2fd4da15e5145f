"""launch/tpu.sh against stand-ins that keep slices, workers and their shells on this machine: what it takes for a
slice's end, what it starts again, what it deletes, and what it leaves alone."""

import signal
import subprocess

import pytest
from kits.clouds import ROOT, Cloud, watched
from kits.waiting import wait_until

SLICE = ("--name", "slice", "--zone", "us-west4-a")
RUN = (*SLICE, "--type", "v5litepod-16", "--bucket", "gs://b/runs")
PRETRAIN = ("--", "pretrain", "--config", "demo")
REMOVAL = "bash launch/tpu.sh delete --name slice --zone us-west4-a --project there\n"


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with watched(tmp_path / "cloud", monkeypatch) as make:
        yield make


def slices(here: Cloud) -> list[str]:
    """What is left in the cloud."""
    return sorted(path.name for path in (here.place / "slices").glob("*"))


def counts(here: Cloud) -> tuple[int, int, int]:
    """How many slices were made and deleted, and how many times bert-jax was started."""
    return len(here.calls("create")), len(here.calls("delete")), len(here.words())


def test_a_run_from_nothing_to_its_end(cloud):
    here = cloud(workers=2, slices=[{"states": ["ACCEPTED", "PROVISIONING", "CREATING", "ACTIVE"]}])
    code, said = here.run("tpu.sh", *RUN, "--spot", "--delete", *PRETRAIN, ENDS="0")
    assert code == 0, said
    words = ["pretrain", "--config", "demo", "--workdir", "gs://b/runs/slice"]
    assert sorted(here.words()) == [["worker-0", *words], ["worker-1", *words]]
    (created,) = here.calls("create")
    assert "--spot" in created and "--runtime-version=v2-alpha-tpuv5-lite" in created
    assert slices(here) == [] and REMOVAL not in said
    for number in range(2):
        log = here.place / f"bucket/b/runs/slice/logs/host-worker-{number}.log"
        assert log.read_text() == "this run says 0\n"


def test_without_being_asked_to_it_deletes_nothing_and_says_what_is_left(cloud):
    here = cloud()
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0 and slices(here) == ["slice"] and said.endswith(REMOVAL)
    assert here.run("tpu.sh", *REMOVAL.split()[2:])[0] == 0 and slices(here) == []


def test_words_arrive_as_given(cloud):
    here = cloud()
    words = ["two  words ", "it's", 'a "b"', "$HOME", "`id`", "a\\b\\\\", "*", "", "ü\n\nx"]
    words += ["&;|<>(){}#!", "~", "-x"]
    code, said = here.run("tpu.sh", *RUN, "--", "prepare", *words, ENDS="0")
    assert code == 0, said
    assert here.words() == [["worker-0", "prepare", *words]]


@pytest.mark.full
def test_a_dry_run_calls_nothing_and_can_be_pasted(cloud):
    here = cloud()
    words = ['--config.corpus.source=it\'s a "text"  *', "--config.tokenizer.path=gs://b/vocab.txt"]
    code, said = here.run("tpu.sh", *RUN, "--delete", "--dry-run", *PRETRAIN, *words)
    assert code == 0 and not here.calls()
    scratch = here.place.parent / "scratch"
    scratch.mkdir()
    pasted = said.replace("/tmp/bert_jax_launch", str(scratch))
    environment = here.environment(ENDS="0")
    subprocess.run(["bash", "-e"], input=pasted, env=environment, cwd=ROOT, text=True, check=True)
    started = ["pretrain", "--config", "demo", *words, "--workdir", "gs://b/runs/slice"]
    assert here.words() == [["worker-0", *started]]


FULL = pytest.mark.full


@pytest.mark.parametrize("end", [2, pytest.param(1, marks=FULL), pytest.param(130, marks=FULL)])
def test_what_would_fail_again_is_not_started_again(cloud, end):
    here = cloud(workers=2)
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS=f"{end}")
    assert code == end and counts(here) == (1, 0, 2) and said.endswith(REMOVAL)


@pytest.mark.full
def test_what_was_preempted_starts_again_on_the_same_slice(cloud):
    """On its worker first (launch/run.sh), then from here, where the worker has given up."""
    here = cloud()
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="75 137 76 0", AGAIN_TIMES="1")
    assert code == 0 and counts(here) == (1, 0, 4), said


def test_a_slice_that_is_taken_is_made_again_a_bounded_number_of_times(cloud, tmp_path):
    """Every start of the run takes its slice."""
    here = cloud(slices=[{"taken_at": [f"{tmp_path}/cloud/take{number}" for number in range(4)]}])
    ends = "take0 take1 take2 take3"
    code, said = here.run("tpu.sh", *RUN, "--retries", "2", *PRETRAIN, ENDS=ends)
    assert code == 1 and counts(here)[0] == counts(here)[2] == 3, said
    assert slices(here) == []


@pytest.mark.full
@pytest.mark.parametrize("state", ["WAITING_FOR_RESOURCES", "PROVISIONING", ""])
def test_a_slice_that_is_yet_to_come_is_waited_for(cloud, state):
    """Also where ssh fails now and then, and where somebody else asked for it meanwhile."""
    states = ["ACTIVE", *[state] * 3, "ACTIVE"]
    here = cloud(failing=[1, 2, 4, 6, 8, 9], slices=[{"states": states}])
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0 and counts(here) == (1, 0, 1), said


@pytest.mark.full
@pytest.mark.parametrize("more, left", [((), ["slice"]), (("--delete",), [])])
def test_a_slice_that_never_could_be_reached_is_left_or_deleted_as_asked(cloud, more, left):
    here = cloud(failing=list(range(1, 100)))
    code, said = here.run("tpu.sh", *RUN, *more, *PRETRAIN, ENDS="0")
    assert code == 1 and counts(here)[0] == 1 and slices(here) == left
    assert said.endswith(REMOVAL) == bool(left)


def test_where_the_cloud_cannot_be_asked_nothing_is_deleted(cloud):
    here = cloud(unknown=list(range(1, 100)))
    code, said = here.run("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="0")
    assert code == 1 and counts(here) == (0, 0, 0) and said.endswith(REMOVAL)


@pytest.mark.full
def test_a_run_that_may_be_there_is_not_deleted_unseen(cloud):
    """It is not reached any more; the watching ends, and another one does not see it."""
    here = cloud(failing=list(range(5, 100)))
    process = here.start("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="wait")
    wait_until((here.place / "waiting").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    code, said = here.run("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="wait")
    assert code == 1 and slices(here) == ["slice"] and said.endswith(REMOVAL)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watching_and_not_the_run(cloud, number):
    here = cloud()
    process = here.start("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="wait")
    wait_until((here.place / "waiting").exists)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode in (130, 143) and said.endswith(REMOVAL), said
    # Started again it finds the run, and ends with it; `stop` is not a preemption.
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="wait")
    seen = len(here.calls("--worker=all"))
    wait_until(lambda: len(here.calls("--worker=all")) > seen + 1)
    assert here.run("tpu.sh", "stop", *SLICE)[0] == 0
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75 and counts(here) == (1, 0, 1), said


WRONG = {
    "--type": [*SLICE, "--bucket", "gs://b", *PRETRAIN],
    "--name": ["--name", "Not_a_name", *RUN[2:], *PRETRAIN],
    "--config.tokenizer.path": [*RUN, *PRETRAIN, "--config.tokenizer.path=/elsewhere/vocab.txt"],
    "--bucket": [*RUN[:-1], "b", *PRETRAIN],
    "--workdir": [*RUN[:-2], *PRETRAIN],
    "--config": [*RUN, "--", "pretrain", "--config", "/elsewhere/mine.py"],
    "--sport": [*RUN, "--sport", *PRETRAIN],
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_said_in_a_line_before_anything_is_done(tmp_path, word):
    here = Cloud(tmp_path / "cloud", {}, program=None)
    code, said = here.run("tpu.sh", *WRONG[word])
    assert code == 2 and said.count("\n") == 1 and word in said
    assert not here.calls()
