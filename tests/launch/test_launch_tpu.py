"""launch/tpu.sh against stand-ins that keep slices, workers and their shells on this machine: what it starts again,
what it deletes, and what it leaves alone."""

import pytest
from kits.clouds import Cloud

SLICE = ("--name", "slice", "--zone", "us-west4-a")
RUN = (*SLICE, "--type", "v5litepod-16", "--bucket", "gs://b/runs")
PRETRAIN = ("--", "pretrain", "--config", "demo")
REMOVAL = "bash launch/tpu.sh delete --name slice --zone us-west4-a --project there\n"


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """Makes a Cloud of a scenario."""
    for name in ("AGAIN_WAIT", "AGAIN_TIMES", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return lambda **scenario: Cloud(tmp_path / "cloud", scenario)


def slices(here: Cloud) -> list[str]:
    """What is left in the cloud."""
    return sorted(path.name for path in (here.place / "slices").glob("*"))


def counts(here: Cloud) -> tuple[int, int, int]:
    """How many slices were made and deleted, and how many times bert-jax was started."""
    return len(here.calls("create")), len(here.calls("delete")), len(here.words())


@pytest.mark.slow
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


@pytest.mark.slow
def test_without_being_asked_to_it_deletes_nothing_and_says_what_is_left(cloud):
    here = cloud()
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0 and slices(here) == ["slice"] and said.endswith(REMOVAL)
    assert here.run("tpu.sh", *REMOVAL.split()[2:])[0] == 0 and slices(here) == []


@pytest.mark.slow
def test_words_arrive_as_given(cloud):
    here = cloud()
    words = ["two  words ", "it's", 'a "b"', "$HOME", "`id`", "a\\b\\\\", "*", "", "ü\n\nx"]
    words += ["&;|<>(){}#!", "~", "-x"]
    code, said = here.run("tpu.sh", *RUN, "--", "prepare", *words, ENDS="0")
    assert code == 0, said
    assert here.words() == [["worker-0", "prepare", *words]]


@pytest.mark.slow
@pytest.mark.parametrize("ends, code, starts", [("2 0", 2, 1), ("75 137 76 0", 0, 4)])
def test_what_was_preempted_starts_again_and_what_would_fail_again_does_not(
    cloud, ends, code, starts
):
    """On its worker first (launch/run.sh), then from here, where the worker has given up."""
    here = cloud()
    ended, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS=ends, AGAIN_TIMES="1")
    assert ended == code and counts(here) == (1, 0, starts), said


@pytest.mark.slow
def test_a_slice_that_is_taken_is_made_again_a_bounded_number_of_times(cloud, tmp_path):
    """Every start of the run takes its slice."""
    here = cloud(slices=[{"taken_at": [f"{tmp_path}/cloud/take{number}" for number in range(4)]}])
    ends = "take0 take1 take2 take3"
    code, said = here.run("tpu.sh", *RUN, "--retries", "2", *PRETRAIN, ENDS=ends)
    assert code == 1 and counts(here)[0] == counts(here)[2] == 3, said
    assert slices(here) == []


def test_where_the_cloud_cannot_be_asked_nothing_is_deleted(cloud):
    here = cloud(unknown=list(range(1, 100)))
    code, said = here.run("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="0")
    assert code == 1 and counts(here) == (0, 0, 0) and said.endswith(REMOVAL)
