"""What a run's files tell of all its starts: read back, and refused where they are something else."""

import json
import shutil

import pytest
from kits import runs
from kits.runs import HELDOUT, TRAIN

from bert_jax import train
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file

START = {"step": 0, "time": 1000.0, "compile_seconds": 30.0}


def write(path, *values, end="\n"):
    path.write_text("\n".join(map(json.dumps, values)) + end)


# Bytes of a file that are no lines of metrics.
DAMAGES = (b"\x90", b"{\n", b"[" * 100_000 + b"\n", json.dumps(HELDOUT).encode() + b"\n5\n")


@pytest.mark.parametrize("content", DAMAGES, ids=["no text", "no JSON", "deep", "a number"])
def test_a_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=str(path)):
        metrics_file.lines(path)


WRONG = [
    *({"step": 1.5}, {"step": True}, {"split": 1}, {"seconds": None}, {"seconds": 10**400}),
    *({"time": float("nan")}, {"save_seconds": "1"}, {"fill": "much"}, {"loss": [1.0]}),
]


@pytest.mark.parametrize("change", WRONG)
def test_a_line_with_a_wrong_value_is_none(change):
    assert metrics_file.is_line(TRAIN) and metrics_file.is_line(HELDOUT)
    assert not metrics_file.is_line(TRAIN | change)


def test_a_line_that_a_kill_has_cut_off_goes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, TRAIN, HELDOUT, TRAIN | {"step": 10}, end="")
    assert metrics_file.lines(path) == [TRAIN, HELDOUT]
    write(path, TRAIN, HELDOUT, TRAIN | {"step": 6})
    metrics_file.drop_after(path, 5)
    assert metrics_file.lines(path) == [TRAIN, HELDOUT]


@pytest.fixture
def run(finished, tmp_path):
    """(config of five more steps, workdir)"""
    settings, workdir = finished
    shutil.copytree(workdir, tmp_path / "run")
    return runs.load(settings, **{"phases.main.steps": 25}), tmp_path / "run"


@pytest.mark.parametrize("wrong", ["x", [1], [START | {"time": "now"}], [START | {"step": -1}]])
def test_damaged_starts_end_a_run_before_anything_is_written(run, wrong):
    config, workdir = run
    path = workdir / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"starts": wrong}))
    there = {file: file.read_bytes() for file in workdir.rglob("*") if file.is_file()}
    with pytest.raises(BadInput, match=f"{path}: starts"):
        train.pretrain(config, workdir)
    assert there == {file: file.read_bytes() for file in workdir.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_a_run_goes_on_beside_a_damaged_log(run):
    config, workdir = run
    path = workdir / "metrics.jsonl"
    sound = path.read_text().splitlines(keepends=True)
    damaged = "".join([*sound[:2], "x\n", *sound[2:]]).encode() + b"\x90\n"
    path.write_bytes(damaged)
    assert train.pretrain(config, workdir) == 0
    [aside] = workdir.glob("metrics.damaged-*.jsonl")
    assert aside.read_bytes() == damaged
    assert path.read_text().startswith("".join(sound))
    assert metrics_file.lines(path)[-1]["step"] == 25
