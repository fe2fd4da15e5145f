"""GPU machines, SLURM, GKE and SkyPilot: the arguments and variables of bert-jax, and which exit codes restart it."""

import os
import re
import signal
import threading

import pytest
import yaml
from kits.paths import ROOT
from kits.waiting import wait_until

from bert_jax import cli, config

GPUS = "NVIDIA H100 80GB HBM3, 81559 MiB, 550.54"
PRETRAIN = ["pretrain", "--config", "demo", "--workdir", "run", "it's"]
FLAGS = "--xla_gpu_deterministic_ops=true"


def test_gpu_sh_restarts_bert_jax_with_its_arguments(cloud):
    command = ["bash", "launch/gpu.sh", *PRETRAIN]
    code, output = cloud.run(*command, ENDS="75 137 0", GPUS=GPUS)
    assert code == 0 and cloud.calls() == [["laptop", *PRETRAIN]] * 3, output
    assert cloud.lines("settings") == [FLAGS] * 3 and cloud.lines("extras") == ["gpu"]


def test_gpu_sh_fails_without_a_gpu(cloud):
    code, output = cloud.run("bash", "launch/gpu.sh", *PRETRAIN)
    assert code == 1 and "nvidia-smi" in output.lower() and not cloud.calls()


def submit(*options: str) -> list[str]:
    return ["sbatch", *options, "launch/slurm.sbatch", *PRETRAIN]


def test_a_slurm_job_has_a_process_for_each_gpu_and_restarts_them(cloud):
    cloud.run(*submit("--nodes=2", "--ntasks-per-node=1"), ENDS="137 76 0")
    starts = [[host, *PRETRAIN] for host in ("worker-0", "worker-1")]
    assert sorted(cloud.calls()) == sorted(starts * 3) and cloud.lines("slurm") == ["ended 0"]
    assert set(cloud.lines("settings")) == {FLAGS}


def restarted() -> dict[int, bool]:
    """Returns {exit code: whether the command is restarted}, as in docs/reliability.md."""
    rows = re.findall(
        r"^\| (\d+) \|.*\| (yes|no) \|$", (ROOT / "docs/reliability.md").read_text(), re.M
    )
    return {int(code): answer == "yes" for code, answer in rows}


def ends(cloud) -> list[int]:
    """Returns the exit codes of the starts of a SLURM job."""
    return [int(line.split()[1]) for line in cloud.lines("slurm") if line.startswith("ended")]


@pytest.mark.parametrize("code", restarted())
def test_a_slurm_job_is_requeued_after_the_codes_of_the_documentation(cloud, code):
    """again.sh gives up after six starts. After the job is requeued, it succeeds."""
    codes = " ".join([f"{code}"] * 6 + ["0"])
    cloud.run(*submit("--ntasks-per-node=1"), ENDS=codes)
    assert ends(cloud) == [code, *([0] if restarted()[code] else [])]
    assert (code in fatal_in_jobset()) == (code > 0 and not restarted()[code])


@pytest.mark.parametrize("options, passed", [([], []), (["--cpus-per-task=8"],) * 2])
def test_srun_gets_the_cores_of_sbatch(cloud, options, passed):
    cloud.run(*submit("--ntasks-per-node=1", *options))
    assert cloud.lines("srun") == ["--kill-on-bad-exit=0", *passed]


@pytest.mark.parametrize("cause", ["time limit", "scancel"])
def test_a_slurm_job_is_requeued_after_its_time_limit_but_not_after_scancel(cloud, cause):
    command, ends = submit("--ntasks-per-node=1"), {"ENDS": "wait 0"}
    job = threading.Thread(target=cloud.run, args=command, kwargs=ends)
    job.start()
    wait_until((cloud.directory / "waiting").exists)
    if cause == "scancel":
        os.kill(int(cloud.lines("batch")[0]), signal.SIGTERM)
    os.kill(int(cloud.lines("parent")[0]), signal.SIGTERM)
    job.join(30)
    expected = ["ended 75"] if cause == "scancel" else ["scontrol requeue 7", "ended 75", "ended 0"]
    assert cloud.lines("slurm") == expected


def jobset() -> tuple[dict, dict]:
    """Returns the JobSet, and the specification of its one Job."""
    manifest = yaml.safe_load((ROOT / "launch/gke.yaml").read_text())
    (job,) = manifest["spec"]["replicatedJobs"]
    return manifest, job["template"]["spec"]


def fatal_in_jobset() -> list[int]:
    """Returns the exit codes after which the JobSet fails."""
    (rule,) = jobset()[1]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["operator"] == "In"
    return rule["onExitCodes"]["values"]


def test_a_jobset_fails_with_the_exit_codes_that_again_sh_does_not_restart(cloud):
    manifest, job = jobset()
    (rule,) = manifest["spec"]["failurePolicy"]["rules"]
    assert rule["action"] == "FailJobSet" and rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    for number, code in enumerate(fatal_in_jobset(), 1):
        cloud.run("bash", "launch/again.sh", "bert-jax", ENDS=f"{code}")
        assert len(cloud.calls()) == number
    assert job["backoffLimit"] == 0 and job["template"]["spec"]["restartPolicy"] == "Never"


def test_a_jobset_has_a_pod_for_each_host_and_arguments_that_parse():
    _, job = jobset()
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    # The devices of a TPU belong to root.
    assert container["securityContext"] == {"privileged": True, "runAsUser": 0}
    assert "command" not in container  # so that the image's own is used, which begins with tini
    arguments, overrides = cli.split_overrides(container["args"])
    config.load(cli.parser(cli.COMMANDS).parse_args(arguments).config, overrides)
    rows, columns = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")
    chips = container["resources"]["limits"]["google.com/tpu"] * job["completions"]
    assert job["completions"] == job["parallelism"] and chips == int(rows) * int(columns)


def test_documented_commands_of_other_programs():
    paths = ("docs/cloud.md", "docs/clusters.md", "launch/gke.yaml")
    text = "\n".join((ROOT / path).read_text() for path in paths)
    assert not re.findall(r"gcloud compute tpus (?!tpu-vm ).*", text)  # the older kind of TPU
    for line in re.findall(r"kubectl logs .*", text):
        assert int(re.search(r"--max-log-requests=(\d+)", line)[1]) >= 64  # kubectl's default is 5
    assert not re.findall(
        r"-m venv (?!\.venv|[~/]).*", text
    )  # it would be copied with the checkout


SKY = yaml.safe_load((ROOT / "launch/skypilot.yaml").read_text())


@pytest.mark.parametrize("gpus", ["", GPUS])
def test_the_skypilot_task_installs_an_extra_and_restarts_pretrain(cloud, gpus):
    variables = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}
    variables |= {"SKYPILOT_NODE_RANK": "1", "GPUS": gpus}
    variables |= {"CONFIG": "mine.py", "STORE": "gs://b/it's", "WORKDIR": "gs://b/a run"}
    code, output = cloud.run("bash", "-c", SKY["run"], ENDS="76 0", **variables)
    assert code == 0, output
    arguments = ["--config", "mine.py", "--config.store=gs://b/it's", "--workdir", "gs://b/a run"]
    assert cloud.calls() == [["laptop", "pretrain", *arguments]] * 2
    assert cloud.lines("extras") == ["gpu,gcs" if gpus else "tpu"]
    assert cloud.lines("settings") == [FLAGS if gpus else ""] * 2
