"""`verify` names altered files of a store, and altered checkpoints, config and tokenizer of a run, and no others."""

import json
import os
import shutil
from pathlib import Path

import pytest
from fuzz.attempts import listing
from kits.damage import flip_bit
from kits.malformed_inputs import refused

from bert_jax.cli import main
from bert_jax.convert import open_model
from bert_jax.runs import continuation


def verify(capsys, kind, directory) -> set[str]:
    """Returns the files that verify names. It changes none."""
    before = listing(directory)
    capsys.readouterr()
    code = main(["verify", f"--{kind}", str(directory), "--json", "-"])
    values = json.loads(capsys.readouterr().out)
    assert listing(directory) == before
    assert code == int(not values["valid"]) and values["valid"] == (not values["problems"])
    return {problem["file"] for problem in values["problems"]}


@pytest.fixture
def store(finished, tmp_path):
    return shutil.copytree(finished[0]["store"], tmp_path / "store")


@pytest.fixture
def run(finished, tmp_path):
    """A run of 20 steps with checkpoints at 10 and 20."""
    return shutil.copytree(finished[1], tmp_path / "run")


@pytest.mark.slow
def test_intact_files_have_no_problems(store, run, capsys):
    assert verify(capsys, "store", store) == verify(capsys, "workdir", run) == set()
    assert main(["verify", "--workdir", str(run)]) == 0
    assert str(run) in capsys.readouterr().out


def grow(path):
    path.write_bytes(path.read_bytes() + b"x")


def truncate(path):
    os.truncate(path, path.stat().st_size - 2)  # the last byte of a manifest is its line break


@pytest.mark.parametrize("damage", [flip_bit, truncate, grow, Path.unlink])
def test_a_damaged_file_of_a_store_is_named(store, capsys, damage):
    """Each file in turn. Indexes of rows are not verified; a directory without a manifest is no store."""
    shutil.rmtree(store / "index", ignore_errors=True)
    paths = [path for path in store.rglob("*") if path.is_file()]
    assert len(paths) > 10
    for path in paths:
        if (damage, path.name) == (Path.unlink, "manifest.json"):
            continue
        content = path.read_bytes()
        damage(path)
        assert verify(capsys, "store", store) == {path.relative_to(store).as_posix()}
        path.write_bytes(content)


def edited(name, **changes):
    """Returns a damage: changed values in a JSON file."""

    def damage(run):
        values = json.loads((run / name).read_text()) | changes
        (run / name).write_text(json.dumps(values))

    return damage


def flipped(name):
    """Returns a damage: flipped bits in a file, or in all files of a directory that have arrays."""

    def damage(run):
        target = run / name
        files = target.rglob("d/*") if target.is_dir() else [target]
        for path in files:
            for part in (2, 3, 4):  # one of them may be in bytes that are not read
                flip_bit(path, path.stat().st_size // part, 4)

    return damage


OF_RUNS = {
    "config unreadable": (lambda run: (run / "config.json").write_text("{"), "config.json"),
    "another config": (edited("config.json", seed=7), "config.json"),
    "run.json unreadable": (lambda run: (run / "run.json").write_text("{"), "run.json"),
    "another run": (edited("run.json", run="x"), "checkpoints/20"),
    "status unreadable": (lambda run: (run / "status.json").write_text("["), "status.json"),
    "a piece": (flipped("tokenizer/vocab.txt"), "tokenizer"),
    "no tokenizer": (lambda run: shutil.rmtree(run / "tokenizer"), "tokenizer/settings.json"),
    "no UTF-8": (lambda run: (run / "tokenizer/vocab.txt").write_bytes(b"\xed"), "tokenizer"),
    "a flipped bit": (flipped("checkpoints/20/params"), "checkpoints/20"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", OF_RUNS)
def test_damaged_files_of_a_run_are_named(run, capsys, damage):
    change, name = OF_RUNS[damage]
    change(run)
    assert name in verify(capsys, "workdir", run)


def test_a_run_is_intact_after_a_key_was_added(run, capsys):
    """Its config.json has no such key, and its digest is of the keys that it has."""
    values = json.loads((run / "config.json").read_text())
    del values["optimizer"]["moment_dtype"]
    edited("run.json", config=continuation.digest(values))(run)
    (run / "config.json").write_text(json.dumps(values))
    assert verify(capsys, "workdir", run) == set()
    assert open_model.open_model(run).step == 20


def test_a_killed_run_is_intact(run, capsys):
    """The last line of metrics.jsonl is incomplete: the next start drops it."""
    (run / "summary.json").unlink()
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 25, "sp')
    assert verify(capsys, "workdir", run) == set()


def test_paths_that_are_no_store_and_no_run_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / ("x" * 300)):
        for kind in ("--store", "--workdir"):
            assert str(path) in refused("verify", kind, path)
    assert "--workdir" in refused("verify")
    assert "--workdir" in refused("verify", "--store", tmp_path, "--workdir", tmp_path)
    assert list(tmp_path.iterdir()) == []
