"""Whatever happens to a file of a run is named; nothing is named in a sound one, and nothing is written."""

import json
import os
import shutil

import pytest
from fuzz.attempts import listing
from kits.damage import flip_bit
from kits.doors import refused

from bert_jax.cli import main


@pytest.fixture
def run(finished, tmp_path):
    """20 steps, with checkpoints at 10 and 20."""
    return shutil.copytree(finished[1], tmp_path / "run")


def found(run, capsys) -> set[str]:
    """The files that verify names; it changes none."""
    before = listing(run)
    capsys.readouterr()
    code = main(["verify", "--workdir", str(run), "--json", "-"])
    values = json.loads(capsys.readouterr().out)
    assert listing(run) == before
    assert code == int(not values["sound"]) and values["sound"] == (not values["problems"])
    return {problem["file"] for problem in values["problems"]}


def test_a_sound_run(run, capsys):
    assert found(run, capsys) == set()
    assert main(["verify", "--workdir", str(run)]) == 0
    assert str(run) in capsys.readouterr().out


def rewrite(name, **changes):
    """A damage: other values in a JSON file; `...` takes one out."""

    def damage(run):
        values = json.loads((run / name).read_text()) | changes
        values = {key: value for key, value in values.items() if value is not ...}
        (run / name).write_text(json.dumps(values))

    return damage


def metrics(change):
    """A damage: other lines in metrics.jsonl."""

    def damage(run):
        path = run / "metrics.jsonl"
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return damage


def flip(name):
    def damage(run):
        (place,) = run.glob(name)
        # Of a checkpoint, where a file may hold older content that nobody reads, in every file of arrays.
        for path in place.rglob("d/*") if place.is_dir() else [place]:
            flip_bit(path, path.stat().st_size // 2, 4)

    return damage


def lose(name):
    return lambda run: (run / name).unlink()


DAMAGES = {
    "config unreadable": (lambda run: (run / "config.json").write_text("{"), "config.json"),
    "no config": (lose("config.json"), "config.json"),
    "no facts": (lose("run.json"), "run.json"),
    "no vocabulary": (rewrite("run.json", vocabulary=...), "run.json"),
    "other starts": (rewrite("run.json", starts=[{"step": "x"}]), "run.json"),
    "another run": (rewrite("run.json", run="x"), "checkpoints/20"),
    "state": (rewrite("status.json", state="asleep"), "status.json"),
    "a checkpoint lost": (lambda run: shutil.rmtree(run / "checkpoints/20"), "status.json"),
    "no status": (lose("status.json"), "status.json"),
    "no summary": (lose("summary.json"), "summary.json"),
    "cut off": (metrics(lambda lines: [*lines[:-1], lines[-1][:-5]]), "metrics.jsonl"),
    "a line twice": (metrics(lambda lines: [lines[0], *lines]), "metrics.jsonl"),
    "a pipe": (
        lambda run: ((run / "metrics.jsonl").unlink(), os.mkfifo(run / "metrics.jsonl")),
        "metrics.jsonl",
    ),
    "a piece": (flip("tokenizer/vocab.txt"), "tokenizer"),
    "no tokenizer": (lambda run: shutil.rmtree(run / "tokenizer"), "tokenizer/settings.json"),
    "a flipped bit": (flip("checkpoints/20"), "checkpoints/20"),
    "an event of TensorBoard": (flip("tensorboard/events*"), "tensorboard/events"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damages_are_named(run, capsys, damage):
    change, name = DAMAGES[damage]
    change(run)
    assert any(file == name or file.startswith(f"{name}.") for file in found(run, capsys))


def test_what_a_kill_leaves_is_sound(run, capsys):
    """The last line is half-written: the next start drops it."""
    rewrite("status.json", state="running")(run)
    (run / "summary.json").unlink()
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 25, "sp')
    assert found(run, capsys) == set()


def test_places_that_are_no_runs(tmp_path):
    for name in (tmp_path, tmp_path / "nowhere"):
        assert str(name) in refused("verify", "--workdir", name)
    assert "--workdir" in refused("verify")
    assert "--workdir" in refused("verify", "--store", tmp_path, "--workdir", tmp_path)
    assert list(tmp_path.iterdir()) == []
