"""What a run's files tell of all its starts: read back, refused or mended where they are something else."""

import json
import shutil

import pytest
from fuzz.attempts import listing
from kits import runs
from kits.runs import HELDOUT, TRAIN

from bert_jax import train
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file


def write(path, *values, end="\n"):
    path.write_text("\n".join(map(json.dumps, values)) + end)


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


def test_damaged_starts_end_a_run_before_anything_is_written(run):
    config, workdir = run
    path = workdir / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"starts": [1]}))
    before = listing(workdir)
    with pytest.raises(BadInput, match=f"{path}: starts"):
        train.pretrain(config, workdir)
    assert listing(workdir) == before


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
