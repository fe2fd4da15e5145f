"""Reading metrics.jsonl: invalid lines are skipped, and a resumed run reports its steps again."""

import json
import shutil

import pytest
from kits import runs
from kits.runs import HELDOUT, TRAIN

from bert_jax import train
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file


def write(path, *values, end="\n"):
    path.write_text("\n".join(map(json.dumps, values)) + end)


def test_an_incomplete_last_line_is_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, TRAIN, HELDOUT, TRAIN | {"step": 10}, end="")
    assert metrics_file.lines(path) == [TRAIN, HELDOUT]
    write(path, TRAIN, HELDOUT, TRAIN | {"step": 6})
    metrics_file.drop_after(path, 5)
    assert metrics_file.lines(path) == [TRAIN, HELDOUT]
    with pytest.raises(BadInput, match=str(tmp_path)):
        metrics_file.lines(tmp_path)


@pytest.mark.full
@pytest.mark.slow
def test_a_run_resumes_despite_damaged_lines(finished, tmp_path):
    settings, workdir = finished
    path = shutil.copytree(workdir, tmp_path / "run") / "metrics.jsonl"
    sound = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*sound[:2], b"x\n", *sound[2:], b"\x90\n", b"[1]\n"]))
    assert train.pretrain(runs.load(settings, **{"phases.main.steps": 25}), path.parent) == 0
    assert path.read_bytes().startswith(b"".join(sound))
    assert metrics_file.lines(path)[-1]["step"] == 25
