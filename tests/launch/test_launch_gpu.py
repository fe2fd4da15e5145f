"""launch/gpu.sh and launch/slurm.sh against stand-ins of a driver and of a cluster."""

import subprocess

import pytest
from kits.clouds import BERT_JAX, ROOT, Cloud, make_checkout

GPUS = "NVIDIA H100 80GB HBM3, 81559 MiB, 550.54"
PRETRAIN = ["pretrain", "--config", "demo", "--workdir", "the run"]
JOB = ["--name", "bert", "--nodes", "2", "--gpus", "1", "--time", "8:00:00"]
# Says what it was told by variables, too.
TOLD = BERT_JAX.replace('echo "this', 'echo "$XLA_FLAGS" >>"$CLOUD/flags"\necho "this')


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in ("AGAIN_WAIT", "AGAIN_TIMES", "PYTHON", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    make_checkout(tmp_path / "check out", TOLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/worker-0")
    return Cloud(tmp_path / "cloud", {}, program=None, root=tmp_path / "check out")


def test_a_machine_with_gpus(here):
    code, said = here.run("gpu.sh", *PRETRAIN, ENDS="75 137 0", GPUS=GPUS)
    assert code == 0 and GPUS in said, said
    assert here.words() == [["worker-0", *PRETRAIN]] * 3
    assert set((here.place / "flags").read_text().split()) == {"--xla_gpu_deterministic_ops=true"}


def test_what_is_set_already_stays(here):
    code, _ = here.run("gpu.sh", *PRETRAIN, ENDS="0", GPUS=GPUS, XLA_FLAGS="")
    assert code == 0 and (here.place / "flags").read_text() == "\n"


def test_a_machine_without(here):
    code, said = here.run("gpu.sh", *PRETRAIN, ENDS="0", GPUS="")
    assert code == 1 and not here.words()
    assert said.endswith("no GPU of NVIDIA, or no driver for it: nvidia-smi does not run\n")


def test_a_dry_run_on_a_machine(here):
    code, said = here.run("gpu.sh", "--dry-run", *PRETRAIN, GPUS="")
    assert code == 0 and not here.words()
    ended = subprocess.run(
        ["bash", "-e"],
        input=said,
        env=here.environment(ENDS="0", GPUS=GPUS),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert here.words() == [["worker-0", *PRETRAIN]]


def slurm(here) -> list[str]:
    path = here.place / "slurm"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_goes_on_until_it_is_done(here):
    code, said = here.run("slurm.sh", *JOB, "--", *PRETRAIN, "it's", ENDS="75 137 0")
    assert code == 0 and said.endswith("Submitted batch job 7\n"), said
    words = [*PRETRAIN, "it's"]
    assert sorted(here.words()) == [["worker-0", *words]] * 3 + [["worker-1", *words]] * 3
    called = f"srun --kill-on-bad-exit=0 bert-jax {' '.join(words)}"
    again = "scontrol requeue 7"
    ends = [called, again, "ended 75", called, again, "ended 137", called, "ended 0"]
    assert slurm(here) == ["sbatch runs/slurm/bert.sbatch", *ends]
    assert (here.root / "runs/slurm/bert.log").read_text().count("this run says 0") == 2


@pytest.mark.parametrize("end", [1, 2, 130])
def test_a_job_that_would_fail_again_is_not_put_into_the_queue(here, end):
    here.run("slurm.sh", *JOB, "--", *PRETRAIN, ENDS=f"{end} 0")
    assert slurm(here)[2:] == [f"ended {end}"]


def test_a_job_is_started_a_bounded_number_of_times(here):
    here.run("slurm.sh", *JOB, "--retries", "2", "--", *PRETRAIN, ENDS="75")
    assert slurm(here).count("ended 75") == 3


def test_what_the_cluster_is_asked_for(here):
    here.run("slurm.sh", *JOB, "--option=--partition=long", "--", *PRETRAIN, ENDS="0")
    lines = (here.root / "runs/slurm/bert.sbatch").read_text().splitlines()
    asked = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    expected = {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--time=8:00:00"}
    expected |= {"--requeue", "--signal=TERM@300", "--partition=long", "--open-mode=append"}
    assert asked == expected | {"--job-name=bert", "--output=runs/slurm/bert.log"}


def test_a_dry_run_of_a_job(here):
    code, said = here.run("slurm.sh", *JOB, "--dry-run", "--", *PRETRAIN)
    assert code == 0 and not slurm(here) and not (here.root / "runs").exists()
    ended = subprocess.run(
        ["bash", "-e"], input=said, env=here.environment(ENDS="0"), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(here.words()) == [["worker-0", *PRETRAIN], ["worker-1", *PRETRAIN]]


def test_a_job_is_watched_and_stopped(here):
    for action in ("status", "stop"):
        assert here.run("slurm.sh", action, "--name", "bert")[0] == 0
    assert slurm(here) == ["squeue --me --name bert", "scancel --me --name bert"]
    here.run("slurm.sh", *JOB, "--", *PRETRAIN, ENDS="0")
    assert here.run("slurm.sh", "logs", "--name", "bert")[1].endswith("this run says 0\n")


WRONG = {
    "--gpus": ["--name", "bert", "--time", "1:00", "--", *PRETRAIN],
    "--time": ["--name", "bert", "--gpus", "1", "--", *PRETRAIN],
    "--time '8 hours'": [*JOB[:6], "--time", "8 hours", "--", *PRETRAIN],
    "--nodes '0'": ["--name", "bert", "--nodes", "0", *JOB[4:], "--", *PRETRAIN],
    "--name": ["--name", "a b", "--", *PRETRAIN],
    "--workdir": [*JOB, "--", "pretrain"],
    "nothing to run": JOB,
    "--gpu": ["--gpu", "1"],
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_said_in_a_line(here, word):
    code, said = here.run("slurm.sh", *WRONG[word])
    assert code == 2 and said.count("\n") == 1 and word in said
    assert not slurm(here) and not (here.root / "runs").exists()


@pytest.mark.parametrize("name", ["gpu.sh", "slurm.sh"])
def test_their_help(name):
    told = subprocess.run(
        ["bash", ROOT / "launch" / name, "--help"], capture_output=True, text=True
    )
    assert told.returncode == 0 and told.stdout.startswith(f"usage: bash launch/{name}")
