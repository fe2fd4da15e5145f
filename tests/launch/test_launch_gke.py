"""launch/gke.sh: what it renders, read by a parser of YAML, and what it asks of kubectl."""

import subprocess

import pytest
import yaml
from kits.clouds import Cloud

JOB = ["--name", "bert", "--type", "v6e", "--topology", "4x4", "--image", "there/bert_jax:1"]
PRETRAIN = ["pretrain", "--config", "bert_base", "--workdir", "gs://b/run"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in ("LIBTPU_INIT_ARGS", "TPU_MIN_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    return Cloud(tmp_path / "cloud")


def applied(here, *arguments, **variables) -> tuple[dict, dict]:
    """(JobSet, its one Job's specification)"""
    code, said = here.run("gke.sh", *arguments, **variables)
    assert code == 0 and said.count("bash launch/gke.sh delete --name bert") == 1, said
    return manifest(here)


def manifest(here) -> tuple[dict, dict]:
    found = yaml.safe_load((here.place / "manifest").read_text())
    (job,) = found["spec"]["replicatedJobs"]
    return found, job["template"]["spec"]


def kubectl(here) -> list[list[str]]:
    path = here.place / "kubectl"
    calls = path.read_text().split("\0\n")[:-1] if path.exists() else []
    return [call.split("\0") for call in calls]


@pytest.mark.parametrize(
    "type, topology, selector, hosts, chips",
    [("v6e", "4x4", "tpu-v6e-slice", 4, 4), ("v5e", "1x1", "tpu-v5-lite-podslice", 1, 1)],
)
def test_slices(here, type, topology, selector, hosts, chips):
    arguments = ["--name", "bert", "--type", type, "--topology", topology, *JOB[6:], "--spot"]
    _, job = applied(here, *arguments, "--", *PRETRAIN)
    pod = job["template"]["spec"]
    nodes = {name.removeprefix("cloud.google.com/"): x for name, x in pod["nodeSelector"].items()}
    asked = {"gke-tpu-accelerator": selector, "gke-tpu-topology": topology}
    assert nodes == asked | {"gke-spot": "true"}
    assert pod["tolerations"][0]["key"] == "cloud.google.com/gke-spot"
    assert job["completions"] == job["parallelism"] == hosts
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"google.com/tpu": chips}}
    assert container["image"] == "there/bert_jax:1"


def test_exit_codes_decide_what_is_started_again(here):
    """All pods start again, but for the ends of which the Job's own rule makes a failure of the JobSet."""
    found, job = applied(here, *JOB, "--retries", "3", "--", *PRETRAIN)
    rules = [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 3, "rules": rules}
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [1, 2, 129, 130, 131]
    assert job["backoffLimit"] == 0 and job["template"]["spec"]["restartPolicy"] == "Never"


def test_words_and_flags_arrive_as_given_and_a_dry_run_can_be_pasted(here):
    words = ["it's", 'a "b"', "$HOME `id`", "a\\b\\\\n", "", "ü\n\nx\n", "\t#: {}[]", "true", "~"]
    flags = {"LIBTPU_INIT_ARGS": '--a="b" --c'}
    code, said = here.run("gke.sh", *JOB, "--dry-run", "--", *PRETRAIN, *words, **flags)
    assert code == 0 and not kubectl(here)
    subprocess.run(["bash", "-e"], input=said, env=here.environment(), text=True, check=True)
    assert kubectl(here) == [["apply", "-f", "-"]]
    (container,) = manifest(here)[1]["template"]["spec"]["containers"]
    assert container["command"] == ["tini", "--", "bert-jax"] and container["args"] == [
        *PRETRAIN,
        *words,
    ]
    values = {variable["name"]: variable["value"] for variable in container["env"]}
    assert values == flags | {"TPU_MIN_LOG_LEVEL": "2"}
