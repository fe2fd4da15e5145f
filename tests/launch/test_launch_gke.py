"""launch/gke.sh: what it renders, read by a parser of YAML, and what it asks of kubectl."""

import shutil
import subprocess

import pytest
import yaml
from kits.clouds import ROOT, Cloud

JOB = ["--name", "bert", "--type", "v6e", "--topology", "4x4", "--image", "there/bert_jax:1"]
PRETRAIN = ["pretrain", "--config", "bert_base", "--workdir", "gs://b/run"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in ("LIBTPU_INIT_ARGS", "TPU_MIN_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    return Cloud(tmp_path / "cloud", {}, program=None)


def kubectl(here) -> list[list[str]]:
    path = here.place / "kubectl"
    return (
        [call.split("\0") for call in path.read_text().split("\0\n")[:-1]] if path.exists() else []
    )


def applied(here, *arguments, **variables) -> tuple[dict, dict]:
    """(JobSet, its one Job's specification)"""
    code, said = here.run("gke.sh", *arguments, **variables)
    assert code == 0 and said.count("bash launch/gke.sh delete --name bert") == 1, said
    found = yaml.safe_load((here.place / "manifest").read_text())
    (job,) = found["spec"]["replicatedJobs"]
    return found, job["template"]["spec"]


def action(found: dict, job: dict, code: int) -> str:
    """What Kubernetes makes of a pod that ends with this exit code: the first rule that fits."""
    reason = "BackoffLimitExceeded"
    assert job["backoffLimit"] == 0 and job["template"]["spec"]["restartPolicy"] == "Never"
    for rule in job["podFailurePolicy"]["rules"]:
        if code in rule["onExitCodes"]["values"]:
            reason = {"FailJob": "PodFailurePolicy"}[rule["action"]]
            break
    for rule in found["spec"]["failurePolicy"]["rules"]:
        if reason in rule["onJobFailureReasons"]:
            return rule["action"]
    return "RestartJobSet"


def test_its_slice(here):
    found, job = applied(here, *JOB, "--", *PRETRAIN)
    assert (found["kind"], found["metadata"]["name"]) == ("JobSet", "bert")
    assert job["completions"] == job["parallelism"] == 4 and job["completionMode"] == "Indexed"
    pod = job["template"]["spec"]
    selector = "cloud.google.com/gke-tpu-"
    expected = {f"{selector}accelerator": "tpu-v6e-slice", f"{selector}topology": "4x4"}
    assert pod["nodeSelector"] == expected and "tolerations" not in pod
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"google.com/tpu": 4}}
    assert container["image"] == "there/bert_jax:1" and container["command"] == ["bert-jax"]


def test_spot_nodes_other_hosts_and_an_account(here):
    more = ["--spot", "--chips-per-host", "8", "--service-account", "trainer", "--retries", "3"]
    found, job = applied(here, *JOB, *more, "--namespace", "n", "--", *PRETRAIN)
    pod = job["template"]["spec"]
    assert job["completions"] == 2 and found["spec"]["failurePolicy"]["maxRestarts"] == 3
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["tolerations"][0]["key"] == "cloud.google.com/gke-spot"
    assert pod["serviceAccountName"] == "trainer"
    asked, started = kubectl(here)
    assert asked[:4] == ["--namespace=n", "get", "jobset", "bert"]
    assert started == ["--namespace=n", "apply", "-f", "-"]


@pytest.mark.parametrize(
    "type, topology, selector, hosts, chips",
    [
        ("v5e", "1x1", "tpu-v5-lite-podslice", 1, 1),
        ("v5p", "2x2x4", "tpu-v5p-slice", 4, 4),
        ("tpu7x", "2x2x1", "tpu7x", 1, 4),
        ("v4", "2x2x2", "tpu-v4-podslice", 2, 4),
    ],
)
def test_slices(here, type, topology, selector, hosts, chips):
    arguments = ["--name", "bert", "--type", type, "--topology", topology, *JOB[6:]]
    _, job = applied(here, *arguments, "--", *PRETRAIN)
    pod = job["template"]["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == selector
    assert job["completions"] == hosts
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}


def test_exit_codes_decide_what_is_started_again(here):
    found, job = applied(here, *JOB, "--", *PRETRAIN)
    for code in (75, 76, 134, 137, 143):
        assert action(found, job, code) == "RestartJobSet"
    for code in (1, 2, 129, 130, 131):
        assert action(found, job, code) == "FailJobSet"


def test_words_and_flags_arrive_as_given(here):
    words = [
        "it's",
        'a "b"',
        "$HOME `id`",
        "a\\b\\\\n",
        "",
        "ü\n\nx\n",
        "\t#: {}[]",
        "true",
        "~",
        "|",
    ]
    _, job = applied(here, *JOB, "--", *PRETRAIN, *words, LIBTPU_INIT_ARGS='--a="b" --c')
    (container,) = job["template"]["spec"]["containers"]
    assert container["args"] == [*PRETRAIN, *words]
    values = {variable["name"]: variable["value"] for variable in container["env"]}
    assert values == {"LIBTPU_INIT_ARGS": '--a="b" --c', "TPU_MIN_LOG_LEVEL": "2"}


def test_a_dry_run_calls_nothing_and_can_be_pasted(here):
    code, said = here.run(
        "gke.sh", *JOB, "--context", "a b", "--dry-run", "--", *PRETRAIN, "it's $HOME"
    )
    assert code == 0 and not kubectl(here)
    subprocess.run(["bash", "-e"], input=said, env=here.environment(), text=True, check=True)
    assert kubectl(here) == [["--context=a b", "apply", "-f", "-"]]
    container = yaml.safe_load((here.place / "manifest").read_text())["spec"]["replicatedJobs"][0]
    container = container["template"]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == [*PRETRAIN, "it's $HOME"]


def test_it_is_watched_stopped_and_deleted(here):
    for action in ("status", "logs", "stop", "delete"):
        assert here.run("gke.sh", action, "--name", "bert")[0] == 0
    label = "jobset.sigs.k8s.io/jobset-name=bert"
    assert kubectl(here) == [
        ["get", "jobset", "bert"],
        ["get", "pods", f"--selector={label}", "--output=wide"],
        ["logs", f"--selector={label},batch.kubernetes.io/job-completion-index=0", "--tail=200"],
        ["patch", "jobset", "bert", "--type=merge", '--patch={"spec": {"suspend": true}}'],
        ["delete", "jobset", "bert", "--ignore-not-found"],
    ]


@pytest.mark.parametrize("condition", ["Failed", "Completed"])
def test_what_has_ended_is_not_said_to_run(here, condition):
    applied(here, *JOB, "--", *PRETRAIN)
    (here.place / "conditions").write_text(f"{condition}\n")
    before = len(kubectl(here))
    code, said = here.run("gke.sh", *JOB, "--namespace", "n", "--", *PRETRAIN)
    assert code == 1 and f"has ended ({condition})" in said and "until it is done" not in said
    assert said.endswith("    bash launch/gke.sh delete --name bert --namespace n\n")
    assert not any("apply" in call for call in kubectl(here)[before:])
    assert here.run("gke.sh", "delete", "--name", "bert", "--namespace", "n")[0] == 0
    applied(here, *JOB, "--", *PRETRAIN)


def test_what_was_stopped_goes_on(here):
    applied(here, *JOB, "--", *PRETRAIN)
    assert here.run("gke.sh", "stop", "--name", "bert")[0] == 0
    assert (here.place / "conditions").read_text() == "Suspended\n"
    found, _ = applied(here, *JOB, "--", *PRETRAIN)
    assert found["spec"]["suspend"] is False and not (here.place / "conditions").read_text()


def test_what_kubectl_refuses_is_an_error(here):
    code, said = here.run("gke.sh", *JOB, "--", *PRETRAIN, REFUSED="no matches for kind JobSet")
    assert code == 1 and "no matches for kind JobSet" in said


WRONG = {
    "--name": ["--name", "Not_a_name", *JOB[2:], "--", *PRETRAIN],
    "--type": [*JOB[:2], "--type", "v9", *JOB[4:], "--", *PRETRAIN],
    "--topology": [*JOB[:4], "--topology", "16", *JOB[6:], "--", *PRETRAIN],
    "--chips-per-host": [*JOB, "--chips-per-host", "5", "--", *PRETRAIN],
    "--image": [*JOB[:6], "--", *PRETRAIN],
    "--worker 'x y'": ["logs", "--name", "bert", "--worker", "x y"],
    "--workdir": [*JOB, "--", *PRETRAIN[:3], "--workdir", "/here"],
    "nothing to run": JOB,
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_said_in_a_line(here, word):
    code, said = here.run("gke.sh", *WRONG[word])
    assert code == 2 and said.count("\n") == 1 and word in said
    assert not kubectl(here)


@pytest.mark.parametrize("action", ["status", "logs", "stop", "delete"])
def test_without_kubectl_a_line_says_so(here, tmp_path, action):
    for name in ("bash", "dirname"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    ended = subprocess.run(
        ["bash", ROOT / "launch/gke.sh", action, "--name", "bert"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2 and ended.stderr.startswith("gke.sh: kubectl: not installed (")


def test_its_help():
    told = subprocess.run(
        ["bash", ROOT / "launch/gke.sh", "--help"], capture_output=True, text=True
    )
    assert told.returncode == 0 and told.stdout.startswith("usage: bash launch/gke.sh --name NAME")
