"""launch/gpu.sh and launch/slurm.sh against stand-ins of a driver and of a cluster."""

import subprocess

import pytest
from kits.clouds import Cloud, make_checkout

GPUS = "NVIDIA H100 80GB HBM3, 81559 MiB, 550.54"
PRETRAIN = ["pretrain", "--config", "demo", "--workdir", "the run", "it's"]
JOB = ["--name", "bert", "--nodes", "2", "--gpus", "1", "--time", "8:00:00"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in ("AGAIN_WAIT", "AGAIN_TIMES", "PYTHON", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    make_checkout(tmp_path / "check out")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/worker-0")
    return Cloud(tmp_path / "cloud", root=tmp_path / "check out")


def test_a_machine_with_gpus(here):
    code, said = here.run("gpu.sh", *PRETRAIN, ENDS="75 137 0", GPUS=GPUS)
    assert code == 0 and GPUS in said, said
    assert here.words() == [["worker-0", *PRETRAIN]] * 3
    assert set((here.place / "flags").read_text().split()) == {"--xla_gpu_deterministic_ops=true"}


def test_a_machine_without(here):
    code, said = here.run("gpu.sh", *PRETRAIN, ENDS="0", GPUS="")
    assert code == 1 and "nvidia-smi" in said and not here.words()


def slurm(here) -> list[str]:
    path = here.place / "slurm"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_goes_on_until_it_is_done(here):
    code, said = here.run("slurm.sh", *JOB, "--", *PRETRAIN, ENDS="75 137 0")
    assert code == 0, said
    assert sorted(here.words()) == [["worker-0", *PRETRAIN]] * 3 + [["worker-1", *PRETRAIN]] * 3
    kept = [line for line in slurm(here) if not line.startswith("srun")]
    again = "scontrol requeue 7"
    assert kept[1:] == [again, "ended 75", again, "ended 137", "ended 0"]


def test_a_job_that_would_fail_again_is_not_put_into_the_queue(here):
    here.run("slurm.sh", *JOB, "--", *PRETRAIN, ENDS="2 0")
    assert slurm(here)[2:] == ["ended 2"]


def test_a_dry_run_of_a_job_asks_the_cluster_for_what_is_needed(here):
    code, said = here.run("slurm.sh", *JOB, "--option=-p long", "--dry-run", "--", *PRETRAIN)
    assert code == 0 and not slurm(here) and not (here.root / "runs").exists()
    environment = here.environment(ENDS="0")
    subprocess.run(["bash", "-e"], input=said, env=environment, text=True, check=True)
    assert sorted(here.words()) == [["worker-0", *PRETRAIN], ["worker-1", *PRETRAIN]]
    lines = (here.root / "runs/slurm/bert.sbatch").read_text().splitlines()
    asked = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    assert asked >= {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--time=8:00:00"}
    assert asked >= {"--requeue", "--signal=TERM@300", "-p long", "--open-mode=append"}
