"""GPUs, SLURM, GKE and SkyPilot: what is asked for, what starts again, and where words arrive."""

import os
import signal
import threading

import pytest
import yaml
from kits.places import ROOT
from kits.waiting import wait_until

from bert_jax import cli, config

GPUS = "NVIDIA H100 80GB HBM3, 81559 MiB, 550.54"
PRETRAIN = ["pretrain", "--config", "demo", "--workdir", "run", "it's"]
FLAGS = "--xla_gpu_deterministic_ops=true"


def test_a_machine_with_gpus(cloud):
    command = ["bash", "launch/gpu.sh", *PRETRAIN]
    code, said = cloud.run(*command, ENDS="75 137 0", GPUS=GPUS)
    assert code == 0 and cloud.words() == [["laptop", *PRETRAIN]] * 3, said
    assert cloud.lines("settings") == [FLAGS] * 3 and cloud.lines("extras") == ["gpu"]


def test_a_machine_without(cloud):
    code, said = cloud.run("bash", "launch/gpu.sh", *PRETRAIN)
    assert code == 1 and "nvidia-smi" in said and not cloud.words()


def submit(*options: str) -> list[str]:
    return ["sbatch", *options, "launch/slurm.sbatch", *PRETRAIN]


def test_a_job_has_a_process_for_each_gpu_and_starts_them_again(cloud):
    cloud.run(*submit("--nodes=2", "--ntasks-per-node=1"), ENDS="137 76 0")
    starts = [[host, *PRETRAIN] for host in ("worker-0", "worker-1")]
    assert sorted(cloud.words()) == sorted(starts * 3) and cloud.lines("slurm") == ["ended 0"]
    assert set(cloud.lines("settings")) == {FLAGS}


@pytest.mark.parametrize("end, ends", [("2", ["2"]), ("137", ["137"]), ("76", ["76", "0"])])
def test_what_is_given_up_is_in_the_queue_again_if_another_node_may_help(cloud, end, ends):
    """Six starts of 76, then one in the next turn."""
    everything = " ".join([end] * 6 + ["0"])
    cloud.run(*submit("--ntasks-per-node=1"), ENDS=everything)
    assert [line.removeprefix("ended ") for line in cloud.lines("slurm") if "ended" in line] == ends


@pytest.mark.parametrize("who", ["time limit", "scancel"])
def test_a_job_goes_on_after_its_time_limit_and_not_after_its_user_has_ended_it(cloud, who):
    job = threading.Thread(
        target=cloud.run, args=submit("--ntasks-per-node=1"), kwargs={"ENDS": "wait 0"}
    )
    job.start()
    wait_until((cloud.place / "waiting").exists)
    if who == "scancel":
        os.kill(int(cloud.lines("batch")[0]), signal.SIGTERM)
    os.kill(int(cloud.lines("parent")[0]), signal.SIGTERM)
    job.join(30)
    kept = ["ended 75"] if who == "scancel" else ["scontrol requeue 7", "ended 75", "ended 0"]
    assert cloud.lines("slurm") == kept


def jobset() -> tuple[dict, dict]:
    """(JobSet, its one Job's specification)"""
    found = yaml.safe_load((ROOT / "launch/gke.yaml").read_text())
    (job,) = found["spec"]["replicatedJobs"]
    return found, job["template"]["spec"]


def test_a_jobset_restarts_what_was_stopped_and_fails_with_what_would_fail_again(cloud):
    """Of an exit code it says what launch/again.sh says."""
    found, job = jobset()
    (rule,) = found["spec"]["failurePolicy"]["rules"]
    assert rule["action"] == "FailJobSet" and rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    (rule,) = job["podFailurePolicy"]["rules"]
    fatal = rule["onExitCodes"]["values"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["operator"] == "In"
    assert not {75, 76, 134, 137, 142, 143} & set(fatal)
    for number, code in enumerate(fatal, 1):
        cloud.run("bash", "launch/again.sh", "bert-jax", ENDS=f"{code}")
        assert len(cloud.words()) == number
    assert job["backoffLimit"] == 0 and job["template"]["spec"]["restartPolicy"] == "Never"


def test_a_jobset_has_a_pod_for_each_host_and_an_images_command():
    _, job = jobset()
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert "command" not in container  # the image's own, which begins with tini
    words, overrides = cli.split_overrides(container["args"])
    config.load(cli.parser(cli.COMMANDS).parse_args(words).config, overrides)
    rows, columns = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")
    chips = container["resources"]["limits"]["google.com/tpu"] * job["completions"]
    assert job["completions"] == job["parallelism"] and chips == int(rows) * int(columns)


SKY = yaml.safe_load((ROOT / "launch/skypilot.yaml").read_text())


@pytest.mark.parametrize("gpus", ["", GPUS])
def test_skypilot_sets_up_and_runs(cloud, gpus):
    told = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}
    told |= {"SKYPILOT_NODE_RANK": "1", "GPUS": gpus}
    told |= {"CONFIG": "mine.py", "STORE": "gs://b/it's", "WORKDIR": "gs://b/a run"}
    for part in ("setup", "run"):
        code, said = cloud.run("bash", "-c", SKY[part], ENDS="76 0", **told)
        assert code == 0, said
    words = ["--config", "mine.py", "--config.store=gs://b/it's", "--workdir", "gs://b/a run"]
    assert cloud.words() == [["laptop", "pretrain", *words]] * 2
    assert cloud.lines("extras") == ["gpu,gcs" if gpus else "tpu"]
    assert cloud.lines("settings") == [FLAGS if gpus else ""] * 2


def test_skypilot_reads_its_task(monkeypatch, tmp_path):
    """Without an account; spot machines, and a store and a workdir that have to be given."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    sky = pytest.importorskip("sky")
    with pytest.raises(ValueError, match="STORE"):
        sky.Task.from_yaml("launch/skypilot.yaml")
    task = sky.Task.from_yaml_config(
        SKY, env_overrides=[("STORE", "gs://b/s"), ("WORKDIR", "gs://b/run")]
    )
    (resources,) = task.resources
    assert resources.use_spot and resources.accelerators == {"tpu-v5litepod-16": 1}
    assert resources.job_recovery == {"strategy": "FAILOVER", "max_restarts_on_errors": 1}
