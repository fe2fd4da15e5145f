"""Whatever happens to a file of a run is named; nothing is named in a sound one, and nothing is written or executed."""

import json
import os
import shutil

import pytest
from fuzz.attempts import listing
from kits.small import SMALL, overrides, write_corpus

from bert_jax.cli import main

FEW_STEPS = {"phases.main.steps": 4, "log.every": 2, "checkpoint.every": 2, "evaluate.every": 0}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=60)
    places = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    keys = [f"--config.{key}" for key in overrides(SMALL | FEW_STEPS | places)]
    run = directory / "run"
    assert main(["pretrain", "--config", "demo", *keys, "--workdir", str(run)]) == 0
    return run


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def found(run, capsys) -> dict:
    """{file: problem} of a run that is not touched by looking."""
    before = listing(run)
    capsys.readouterr()
    code = main(["verify", "--workdir", str(run), "--json", "-"])
    values = json.loads(capsys.readouterr().out)
    assert listing(run) == before
    assert code == int(not values["sound"]) and values["sound"] == (not values["problems"])
    return {problem["file"]: problem["problem"] for problem in values["problems"]}


def test_a_sound_run(run, capsys):
    assert found(run, capsys) == {}
    assert main(["verify", "--workdir", str(run)]) == 0
    assert f"{run}: sound" in capsys.readouterr().out


def test_an_event_for_tensorboard_that_is_damaged(run, capsys):
    (path,) = run.glob("tensorboard/events*")
    name = str(path.relative_to(run))
    flip(name)(run)
    assert list(found(run, capsys)) == [name]


def rewrite(name, **changes):
    def damage(run):
        values = json.loads((run / name).read_text()) | changes
        values = {key: value for key, value in values.items() if value is not ...}
        (run / name).write_text(json.dumps(values))

    return damage


def metrics(change):
    """A damage of the lines of metrics.jsonl."""

    def damage(run):
        path = run / "metrics.jsonl"
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return damage


def flip(name):
    def damage(run):
        place = run / name
        # Of a checkpoint, where a file may hold older content that nobody reads, in every file of arrays.
        for path in place.rglob("d/*") if place.is_dir() else [place]:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 16
            path.write_bytes(content)

    return damage


DAMAGES = {
    "config unreadable": (lambda run: (run / "config.json").write_text("{"), "config.json"),
    "config of another kind": (rewrite("config.json", seed="x"), "config.json"),
    "no config": (lambda run: (run / "config.json").unlink(), "config.json"),
    "no facts": (lambda run: (run / "run.json").unlink(), "run.json"),
    "no vocabulary": (rewrite("run.json", vocabulary=...), "run.json"),
    "other starts": (rewrite("run.json", starts=[{"step": "x"}]), "run.json"),
    "no run": (rewrite("run.json", run=...), "run.json"),
    "another run": (rewrite("run.json", run="x"), "checkpoints/4"),
    "parameters": (rewrite("run.json", parameters=1), "summary.json"),
    "state": (rewrite("status.json", state="asleep"), "status.json"),
    "step": (rewrite("status.json", step=5), "status.json"),
    "a checkpoint that is gone": (lambda run: shutil.rmtree(run / "checkpoints/4"), "status.json"),
    "no status": (lambda run: (run / "status.json").unlink(), "status.json"),
    "no summary": (lambda run: (run / "summary.json").unlink(), "summary.json"),
    "another summary": (rewrite("summary.json", train={}), "summary.json"),
    "cut off": (metrics(lambda lines: [*lines[:-1], lines[-1][:-5]]), "metrics.jsonl"),
    "twice": (metrics(lambda lines: [lines[0], *lines]), "metrics.jsonl"),
    "another order": (metrics(lambda lines: lines[::-1]), "metrics.jsonl"),
    "a line lost": (
        metrics(lambda lines: [x for x in lines if '"step": 4' not in x]),
        "metrics.jsonl",
    ),
    "a line of other things": (metrics(lambda lines: ["[]\n", *lines]), "metrics.jsonl"),
    "a pipe": (
        lambda run: ((run / "metrics.jsonl").unlink(), os.mkfifo(run / "metrics.jsonl")),
        "metrics.jsonl",
    ),
    "a piece": (flip("tokenizer/vocab.txt"), "tokenizer"),
    "no tokenizer": (lambda run: shutil.rmtree(run / "tokenizer"), "tokenizer/settings.json"),
    "a flipped bit": (flip("checkpoints/4"), "checkpoints/4"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damages_are_named(run, capsys, damage):
    change, name = DAMAGES[damage]
    change(run)
    assert name in found(run, capsys)


def test_what_a_kill_leaves_is_sound(run, capsys):
    """The last line half-written: the next start drops it."""
    rewrite("status.json", state="running")(run)
    (run / "summary.json").unlink()
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "sp')
    assert found(run, capsys) == {}


def test_places_that_are_no_runs(finished, tmp_path, capsys):
    both = ["--store", str(tmp_path), "--workdir", str(tmp_path)]
    for options, words in (
        (["--workdir", str(tmp_path)], "not a run"),
        (["--workdir", str(tmp_path / "nowhere")], "not a run"),
        ([], "expected --store or --workdir"),
        (both, "expected --store or --workdir"),
    ):
        assert main(["verify", *options]) == 2
        assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
