"""What a run's files tell of all its starts: read back, and refused where they are something else."""

import json

import pytest
from kits import running
from kits.runs import HELDOUT, TRAIN

from bert_jax import train
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file

START = {"step": 0, "time": 1000.0, "compile_seconds": 30.0}


def write(path, *values, end="\n"):
    path.write_text("\n".join(map(json.dumps, values)) + end)
    return path


def test_seconds_lost_by_hand():
    """Four starts at 0, 0, 10 and 10 of which the third is killed before it has saved: every second once."""
    starts = [
        {"step": 0, "time": 1000.0, "compile_seconds": 30.0},
        {
            "step": 0,
            "time": 1100.0,
            "compile_seconds": 31.0,
        },  # the first was killed before its save
        {"step": 10, "time": 1300.0, "compile_seconds": 5.0},
        {"step": 10, "time": 1400.0, "compile_seconds": 6.0},
    ]

    def train(step, time, seconds, waited, saved):
        values = {"time": time, "seconds": seconds, "input_seconds": waited, "save_seconds": saved}
        return {"step": step, "split": "train"} | values

    kept = [
        train(5, 1140.0, 40.0, 2.0, 0.0),
        train(10, 1180.0, 40.0, 1.0, 0.0),
        {"step": 10, "split": "heldout", "time": 1190.0, "seconds": 9.0, "save_seconds": 1.0},
        train(15, 1440.0, 40.0, 3.0, 0.0),
        train(20, 1490.0, 45.0, 0.5, 5.0),
        {"step": 20, "split": "heldout", "time": 1500.0, "seconds": 8.0, "save_seconds": 4.0},
    ]
    assert metrics_file.lost(starts, kept, last_save=2.0) == {
        "compile": 72.0,
        "save": 12.0,
        "evaluate": 17.0,
        "input": 6.5,
        # From 1000 to 1100, and from 1190 to 1400, without the compiling within.
        "restart": (100 - 31) + (210 - 11),
    }


# Bytes of a file, and the line that is none (0: they are no text).
DAMAGES = {
    b"\x90": 0,
    b"{\n": 1,
    b"[" * 100_000 + b"\n": 1,
    b"\n": 1,
    json.dumps(HELDOUT).encode() + b"\n5\n": 2,
}


@pytest.mark.parametrize(("content", "line"), DAMAGES.items(), ids=range(len(DAMAGES)))
def test_a_damaged_file_is_refused(tmp_path, content, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    told = f"line {line}: not a line" if line else "unreadable"
    with pytest.raises(BadInput, match=f"{path}: {told}"):
        metrics_file.lines(path)


@pytest.mark.parametrize(
    "change",
    [
        {"step": 1.5},
        {"step": True},
        {"split": 1},
        {"seconds": None},
        {"seconds": 10**400},
        {"time": float("nan")},
        {"save_seconds": "1"},
        {"input_seconds": None},
        {"fill": "much"},
        {"loss": [1.0]},
    ],
)
def test_what_no_line_says(change):
    assert metrics_file.is_line(TRAIN) and metrics_file.is_line(HELDOUT)
    assert not metrics_file.is_line(TRAIN | change)


@pytest.mark.parametrize("key", sorted(TRAIN.keys() - {"loss"}))
def test_what_every_line_says(key):
    assert not metrics_file.is_line({name: TRAIN[name] for name in TRAIN if name != key})


def test_a_line_that_a_kill_has_cut_off_goes(tmp_path):
    path = write(tmp_path / "metrics.jsonl", TRAIN, HELDOUT, TRAIN | {"step": 10}, end="")
    assert metrics_file.lines(path) == [TRAIN, HELDOUT]
    later = TRAIN | {"step": 6}
    write(path, TRAIN, HELDOUT, later)
    metrics_file.drop_after(path, 5)
    assert metrics_file.lines(path) == [TRAIN, HELDOUT] and path.read_text().endswith("}\n")
    assert metrics_file.lines(tmp_path / "missing") == []


def test_starts_that_are_none():
    assert metrics_file.starts({}, "run.json") == []
    assert metrics_file.starts({"starts": [START]}, "run.json") == [START]
    for wrong in (
        "x",
        [1],
        [{"step": 1}],
        [START | {"time": "now"}],
        [START | {"time": float("nan")}],
        [START | {"step": -1}],
    ):
        with pytest.raises(BadInput, match="run.json: starts: .* is not what a run has"):
            metrics_file.starts({"starts": wrong}, "run.json")


def test_starts_that_are_damaged_end_a_run_before_anything_is_written(world):
    settings, run = world
    path = run / "run.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {"starts": [1]}))
    there = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with pytest.raises(BadInput, match=f"{path}: starts: "):
        train.pretrain(running.load(settings, **{"phases.main.steps": 25}), run)
    assert there == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    path.write_text(before)


def test_a_run_goes_on_beside_a_damaged_log(world, capsys):
    settings, run = world
    path = run / "metrics.jsonl"
    sound = path.read_text().splitlines(keepends=True)
    damaged = "".join([*sound[:2], "x\n", *sound[2:]]).encode() + b"\x90\n"
    path.write_bytes(damaged)
    assert train.pretrain(running.load(settings, **{"phases.main.steps": 25}), run) == 0
    (aside,) = run.glob("metrics.damaged-*.jsonl")
    assert aside.read_bytes() == damaged
    assert (
        path.read_text().startswith("".join(sound)) and metrics_file.lines(path)[-1]["step"] == 25
    )
    assert f"{path}: unreadable" in capsys.readouterr().out


@pytest.fixture
def world(tmp_path):
    return running.train(tmp_path)
