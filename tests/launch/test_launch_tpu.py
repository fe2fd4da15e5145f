"""launch/tpu.sh against stand-ins that keep slices, workers and their shells on this machine."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from kits.clouds import ROOT, Cloud, watched

TPU = ("--name", "slice", "--type", "v5litepod-16", "--zone", "us-west4-a")
RUN = (*TPU, "--bucket", "gs://b/runs")
PRETRAIN = ("--", "pretrain", "--config", "demo")
REMOVAL = "bash launch/tpu.sh delete --name slice --zone us-west4-a --project there\n"


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with watched(tmp_path / "cloud", monkeypatch) as make:
        yield make


def states(cloud: Cloud) -> list[str]:
    """What is left in the cloud."""
    return sorted(path.name for path in (cloud.place / "slices").glob("*"))


def test_a_run_from_nothing_to_its_end(cloud):
    here = cloud(workers=2, slices=[{"states": ["ACCEPTED", "PROVISIONING", "CREATING", "ACTIVE"]}])
    code, said = here.run("tpu.sh", *RUN, "--spot", "--delete", *PRETRAIN, ENDS="0")
    assert code == 0, said
    words = ["pretrain", "--config", "demo", "--workdir", "gs://b/runs/slice"]
    assert sorted(here.words()) == [["worker-0", *words], ["worker-1", *words]]
    (created,) = here.calls("create")
    assert "--spot" in created and "--runtime-version=v2-alpha-tpuv5-lite" in created
    assert "slice: ACCEPTED" in said and "slice: ACTIVE" in said
    assert states(here) == [] and said.endswith("no slice is left\n")
    for number in range(2):
        log = here.place / f"bucket/b/runs/slice/logs/host-worker-{number}.log"
        assert log.read_text() == "this run says 0\n"


def test_without_being_asked_to_it_deletes_nothing_and_says_what_is_left(cloud):
    here = cloud()
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0 and states(here) == ["slice"]
    assert "STILL EXISTS (ACTIVE)" in said and said.endswith(REMOVAL)
    code, said = here.run("tpu.sh", *REMOVAL.split()[2:])
    assert code == 0 and states(here) == [] and said.endswith("no slice is left\n")


def test_words_arrive_as_given(cloud):
    here = cloud()
    words = [
        "two  words ",
        "it's",
        'a "b"',
        "$HOME",
        "`id`",
        "a\\b\\\\",
        "*",
        "",
        "ü\n\nx",
        "&;|<>(){}#!",
        "~",
        "-x",
    ]
    code, said = here.run("tpu.sh", *RUN, "--", "prepare", *words, ENDS="0")
    assert code == 0, said
    assert here.words() == [["worker-0", "prepare", *words]]


@pytest.mark.parametrize("end", [1, 2, 130])
def test_what_would_fail_again_is_not_started_again(cloud, end):
    here = cloud(workers=2)
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS=f"{end}")
    assert code == end and len(here.words()) == 2 and len(here.calls("create")) == 1
    assert f"this run says {end}" in said and "STILL EXISTS" in said


def test_what_was_preempted_starts_again_on_the_same_slice(cloud):
    """On its worker first (launch/run.sh), then from here, where the worker has given up."""
    here = cloud()
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="75 137 76 0", AGAIN_TIMES="1")
    assert code == 0, said
    assert len(here.words()) == 4 and len(here.calls("create")) == 1
    assert "the run has ended: 137" in said and "start 1 of 20 more in 30 seconds" in said


def test_a_slice_that_is_taken_is_made_again_a_bounded_number_of_times(cloud, tmp_path):
    """Every start of the run takes its slice."""
    events = [f"{tmp_path}/cloud/take{number}" for number in range(5)]
    here = cloud(slices=[{"taken_at": events}])
    ends = "take0 take1 take2 take3 take4"
    code, said = here.run("tpu.sh", *RUN, "--retries", "3", *PRETRAIN, ENDS=ends)
    assert code == 1 and "given up after 3 more starts" in said
    assert len(here.words()) == len(here.calls("create")) == 4 and states(here) == []
    for number, seconds in {1: 30, 2: 60, 3: 120}.items():
        assert f"start {number} of 3 more in {seconds} seconds" in said
    assert said.endswith("no slice is left\n")


def test_a_slice_that_is_taken_while_it_is_set_up_is_made_again(cloud, tmp_path):
    copied = tmp_path / "cloud/slices/slice/worker-0/bert_jax.tar.gz"
    here = cloud(slices=[{"taken_at": [str(copied)]}, {}])
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0, said
    assert len(here.calls("create")) == 2 and len(here.words()) == 1


def test_states_that_end_a_request_are_tried_again(cloud):
    lives = [["ACCEPTED", "FAILED"], ["WAITING_FOR_RESOURCES", "SUSPENDING"], ["ACTIVE"]]
    here = cloud(slices=[{"states": states} for states in lives])
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0, said
    assert len(here.calls("create")) == 3 and len(here.calls("delete")) == 2
    assert "start 2 of 20 more in 60 seconds" in said


def test_ssh_that_fails_now_and_then_is_tried_again(cloud):
    here = cloud(failing=[1, 3, 4, 6, 8, 9])
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 0, said
    assert len(here.words()) == 1 and len(here.calls("create")) == 1


def test_workers_that_never_could_be_reached_are_not(cloud):
    here = cloud(failing=list(range(1, 100)))
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 1 and len(here.calls("create")) == 1 and not here.calls("delete")
    assert "Connection timed out" in said and "does a firewall let ssh in?" in said
    assert said.endswith(REMOVAL)


def test_a_slice_that_cannot_be_set_up_is_deleted_where_that_was_asked_for(cloud):
    here = cloud(failing=list(range(1, 100)))
    code, said = here.run("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="0")
    assert code == 1 and states(here) == [] and said.endswith("no slice is left\n")


def test_where_the_cloud_cannot_be_asked_nothing_is_deleted(cloud):
    here = cloud(unknown=list(range(1, 100)))
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 1 and not here.calls("create") and not here.calls("delete")
    assert "network is unreachable" in said and "MAY STILL EXIST" in said and said.endswith(REMOVAL)


def test_a_refusal_of_the_first_request_ends_it(cloud):
    here = cloud(
        refused="RESOURCE_EXHAUSTED: Quota limit 'TPUV5sLitepodPerProject' has been exceeded"
    )
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert code == 1 and "Quota limit" in said
    assert said.endswith("no slice slice in us-west4-a of there\n")


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watching_and_not_the_run(cloud, number):
    here = cloud()
    process = here.start("tpu.sh", *RUN, "--delete", *PRETRAIN, ENDS="wait")
    wait_for(here.place / "waiting")
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode in (130, 143), said
    assert said.endswith(REMOVAL) and states(here) == ["slice"]
    # Started again it finds the run, and ends with it; `stop` is not a preemption.
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="wait")
    assert any("a run is there already" in line for line in iter(process.stdout.readline, ""))
    code, stopped = here.run("tpu.sh", "stop", *TPU[:2], *TPU[4:])
    said, _ = process.communicate(timeout=60)
    assert code == 0 and "host-worker-0: stopped" in stopped
    assert process.returncode == 75, said
    assert len(here.words()) == 1


def test_a_signal_while_it_waits_for_a_slice_ends_it(cloud):
    here = cloud(slices=[{"states": ["WAITING_FOR_RESOURCES"]}])
    process = here.start("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    assert any("slice: WAITING" in line for line in iter(process.stdout.readline, ""))
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert "STILL EXISTS (WAITING_FOR_RESOURCES)" in said and said.endswith(REMOVAL)


def test_status_and_logs(cloud):
    here = cloud(workers=2)
    here.run("tpu.sh", *RUN, *PRETRAIN, ENDS="0")
    code, said = here.run("tpu.sh", "status", *TPU[:2], *TPU[4:])
    assert code == 0 and "\nACTIVE\n" in said
    assert "worker host-worker-0: ended 0" in said and "worker host-worker-1: ended 0" in said
    code, said = here.run("tpu.sh", "logs", *TPU[:2], *TPU[4:], "--worker", "1")
    assert code == 0 and "\nthis run says 0\n" in said


def test_a_dry_run_calls_nothing_and_can_be_pasted(cloud):
    here = cloud()
    words = ['--config.corpus.source=it\'s a "text"  *', "--config.tokenizer.path=gs://b/vocab.txt"]
    bucket = ["--bucket", "gs://b/runs//"]
    code, said = here.run("tpu.sh", *TPU, *bucket, "--delete", "--dry-run", *PRETRAIN, *words)
    assert code == 0 and not here.calls()
    (here.place.parent / "scratch").mkdir()
    pasted = said.replace("/tmp/bert_jax_launch", str(here.place.parent / "scratch"))
    ended = subprocess.run(
        ["bash", "-e"],
        input=pasted,
        env=here.environment(ENDS="0"),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert here.words() == [
        ["worker-0", "pretrain", "--config", "demo", *words, "--workdir", "gs://b/runs/slice"]
    ]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
def test_gcloud_itself_knows_the_commands(cloud, tmp_path):
    """By its own check of a command's words, which runs nothing and needs neither account nor network."""
    here = cloud()
    # With a project, since that check takes a quoted word after --quiet for the value of --quiet.
    more = ["--project", "p", "--spot", "--delete", "--option=--service-account=a@b", "--dry-run"]
    _, said = here.run("tpu.sh", *RUN, *more, *PRETRAIN, "it's")
    lines = [line for line in said.splitlines() if line.startswith("gcloud ")]
    lines.append(
        "gcloud compute tpus tpu-vm describe slice --zone=us-west4-a '--format=value(state)'"
    )
    settings = {"CLOUDSDK_CONFIG": str(tmp_path / "config"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    settings |= {"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1"}
    settings |= {"CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1"}
    answers = {}
    for line in [*dict.fromkeys(lines), "gcloud compute tpus queued-resources create a --unknown"]:
        command = ["gcloud", "meta", "lint-gcloud-commands", f"--command-string={line}"]
        told = subprocess.run(command, env=os.environ | settings, capture_output=True, check=True)
        answers[line] = json.loads(told.stdout)[0]
    assert not answers.pop(line)["success"]
    assert len(answers) == 8
    assert {
        line: found["error_message"] for line, found in answers.items() if not found["success"]
    } == {}


WRONG = {
    "--type": [*TPU[:2], *TPU[4:], "--bucket", "gs://b", *PRETRAIN],
    "--name": ["--name", "Not_a_name", *TPU[2:], *PRETRAIN],
    "--zone": [*TPU[:4], *PRETRAIN],
    "--zone 'us west4'": [*TPU[:4], "--zone", "us west4", *PRETRAIN],
    "--type: needs a value": [*TPU[:2], "--type", "--zone", "us-west4-a", *PRETRAIN],
    "--config.tokenizer.path": [*RUN, *PRETRAIN, "--config.tokenizer.path=/elsewhere/vocab.txt"],
    "--bucket": [*TPU, "--bucket", "b", *PRETRAIN],
    "--retries": [*RUN, "--retries", "many", *PRETRAIN],
    "--workdir": [*TPU, *PRETRAIN],
    "nothing to run": [*RUN],
    "--config": [*RUN, "--", "pretrain", "--config", "/elsewhere/mine.py"],
    "--wheel": [*RUN, "--wheel", "missing.whl", *PRETRAIN],
    "--worker 'all'": ["logs", *TPU[:2], *TPU[4:], "--worker", "all"],
    "--sport": [*RUN, "--sport", *PRETRAIN],
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_said_in_a_line_before_anything_is_done(tmp_path, word):
    here = Cloud(tmp_path / "cloud", {}, program=None)
    code, said = here.run("tpu.sh", *WRONG[word])
    assert code == 2 and said.count("\n") == 1 and word in said
    assert not here.calls()


def test_a_corpus_in_the_checkout_is_not_copied(tmp_path):
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "launch", root / "launch")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    with open(root / "corpus.txt", "wb") as file:
        file.truncate(300_000_000)
    here = Cloud(tmp_path / "cloud", {}, program=None, root=root)
    code, said = here.run("tpu.sh", *RUN, *PRETRAIN)
    assert code == 2 and said.count("\n") == 1 and "300 MB of files would be copied" in said
    assert not here.calls()
    (root / ".gitignore").write_text("corpus.txt\n")
    assert here.run("tpu.sh", *RUN, "--dry-run", *PRETRAIN)[0] == 0


def test_links_are_copied_as_they_are(tmp_path):
    """To a directory, and to what is larger than all that may be copied."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "launch", root / "launch")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    with open(tmp_path / "corpus.txt", "wb") as file:
        file.truncate(300_000_000)
    (root / "runs").symlink_to(tmp_path)
    (root / "corpus.txt").symlink_to(tmp_path / "corpus.txt")
    here = Cloud(tmp_path / "cloud", {}, program=None, root=root)
    code, said = here.run("tpu.sh", *RUN, "--dry-run", *PRETRAIN)
    assert code == 0, said
    named = "--config.tokenizer.path=corpus.txt"
    code, said = here.run("tpu.sh", *RUN, "--dry-run", *PRETRAIN, named)
    assert code == 2 and said.count("\n") == 1 and "corpus.txt: a link to what is not" in said
    (root / "words.txt").touch()
    (root / "corpus.txt").unlink()
    (root / "corpus.txt").symlink_to("words.txt")
    assert here.run("tpu.sh", *RUN, "--dry-run", *PRETRAIN, named)[0] == 0


def test_its_help():
    told = subprocess.run(
        ["bash", ROOT / "launch/tpu.sh", "--help"], capture_output=True, text=True
    )
    assert told.returncode == 0 and told.stdout.startswith("usage: bash launch/tpu.sh --name NAME")
