"""Saved batches are the store's, bit for bit, whoever reads which of them."""

import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
from kits import processes
from kits.saved_world import World, refused, rewrite
from kits.small import write_corpus

from bert_jax import config, evaluate, train
from bert_jax.cli import main
from bert_jax.commands import load_model, save_batches
from bert_jax.commands.evaluate import evaluate_run
from bert_jax.data import batch, batch_files, feed
from bert_jax.errors import BadInput
from bert_jax.runs import timing


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    made.save(0, 10, made.saved)
    return made


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory):
    """The workdir of a run from the store."""
    directory = tmp_path_factory.mktemp("run") / "run"
    assert train.pretrain(world.load(), directory) == 0
    return directory


def both(world, **changes):
    """The two feeds of a config, and its phases."""
    settings = world.load(**changes)
    from_store = feed.open_feed(settings)
    settings = world.load(batches=world.saved, **changes)
    return from_store, feed.open_feed(settings, 0), config.phases(settings)


def assert_same(batches, others):
    for one, other in zip(batches, others, strict=True):
        assert set(one) == set(other)
        assert all(one[name].dtype == other[name].dtype for name in one)
        assert batch.digest(one) == batch.digest(other)


def numbers(workdir):
    """What two runs have in common if they are the same: all metrics that are no time."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{k: line[k] for k in line.keys() - timing.TIMES} for line in lines]


def assert_same_run(a, b):
    jax.tree.map(
        np.testing.assert_array_equal, load_model.open_run(a).params, load_model.open_run(b).params
    )
    assert numbers(a) == numbers(b)


@pytest.mark.parametrize("positions", [None, [1, 0, 3], [7]])
def test_every_batch_is_read_back_bitwise(world, positions):
    from_store, from_saved, phases = both(world)
    for phase in phases:
        steps = phase, phase.first, phase.last
        assert_same(from_store.train(*steps, positions), from_saved.train(*steps, positions))
    assert_same(
        from_store.train(phases[0], 4, 6, positions), from_saved.train(phases[0], 4, 6, positions)
    )


@pytest.mark.parametrize("size, positions", [(8, None), (6, [5, 0]), (64, None)])
def test_heldout_rows_are_the_same_in_batches_of_any_size(world, size, positions):
    from_store, from_saved, phases = both(world)
    for phase in phases:
        pairs = (f.heldout(phase, size, positions) for f in (from_store, from_saved))
        pairs = list(zip(*pairs, strict=True))
        assert len(pairs) == -(-13 // size)
        for begin, (one, other) in zip(range(0, 13, size), pairs, strict=True):
            real = begin + one["rows"] < 13
            for name in one:
                np.testing.assert_array_equal(one[name][real], other[name][real])
            for name in ("rows", "masked_weights", "pair_weights"):
                np.testing.assert_array_equal(one[name], other[name])


def test_packed_rows_are_read_back_bitwise(world, tmp_path):
    packed = {"phases.long.sequences": 3}
    world.save(6, 10, tmp_path / "packed", **packed)
    settings = world.load(**packed)
    long = config.phases(settings)[1]
    from_saved = feed.SavedFeed(settings, batch_files.open_saved(tmp_path / "packed"))
    from_saved.check_config()
    batches = list(from_saved.train(long, 6, 10))
    assert max(int(arrays["sequence_ids"].max()) for arrays in batches) > 1
    assert_same(feed.open_feed(settings).train(long, 6, 10), batches)
    with pytest.raises(BadInput, match="config.phases.long.sequences: 3 there, 1 now"):
        feed.open_feed(world.load(batches=tmp_path / "packed"), 6)


def test_many_files_are_read_like_one(world, tmp_path, monkeypatch):
    monkeypatch.setattr(save_batches, "BLOCK", 1)
    world.save(0, 10, tmp_path / "saved")
    assert len(list(tmp_path.glob("saved/train/*.npy"))) == 10
    monkeypatch.undo()
    settings = world.load(batches=tmp_path / "saved")
    one, other = feed.open_feed(settings, 0), feed.open_feed(world.load(batches=world.saved), 0)
    for phase in config.phases(settings):
        steps = phase, phase.first, phase.last
        assert_same(one.train(*steps), other.train(*steps))
        assert_same(one.heldout(phase, 5), other.heldout(phase, 5))


def test_the_manifest_has_the_digest_of_every_batch(world, capsys):
    manifest = batch_files.open_saved(world.saved, hashes=True).manifest
    for phase, step, place in (("short", 5, 5), ("long", 6, 0), ("long", 9, 3)):
        capsys.readouterr()
        assert main(["inspect", *world.arguments("--step", step, "--json", "-")]) == 0
        shown = json.loads(capsys.readouterr().out)
        (block,) = manifest["phases"][phase]["train"]["blocks"]
        assert block["sha256"][place] == shown["sha256"]
        batches = world.arguments("--step", step, "--json", "-", batches=world.saved)
        assert main(["inspect", *batches]) == 0
        assert json.loads(capsys.readouterr().out) == shown


def test_the_command_says_what_it_saved(world, tmp_path, capsys):
    options = ["--steps", "4:7", "--save", tmp_path / "new", "--json", tmp_path / "values.json"]
    assert main(["inspect", *world.arguments(*options)]) == 0
    values = json.loads((tmp_path / "values.json").read_text())
    manifest = batch_files.open_saved(tmp_path / "new", hashes=True).manifest
    assert values["steps"] == manifest["steps"] == [4, 7]
    assert values["phases"] == ["short", "long"] and values["digest"] == manifest["digest"]
    assert values["heldout_rows"] == {"short": 13, "long": 13}
    files = [path for path in (tmp_path / "new").rglob("*.*") if path.name != "manifest.json"]
    assert values["bytes"] == sum(path.stat().st_size for path in files)
    shown = capsys.readouterr().out
    assert "steps 4 to 6" in shown and f"--config.batches={tmp_path}/new" in shown


def test_types_are_the_narrowest_that_are_exact():
    def kind(*values, own=np.int32):
        return save_batches.narrowest([np.array(values, own), np.zeros(1, own)])

    assert [kind(0, 255), kind(256), kind(65536), kind(-1)] == [
        np.uint8,
        np.uint16,
        np.int32,
        np.int32,
    ]
    for odd in (0.5, -0.0, np.nan, np.inf, -1, 65536.0, 3e9):
        assert kind(odd, own=np.float32) == np.float32
    assert kind(0, 1, own=np.float32) == np.uint8
    assert save_batches.narrowest([np.zeros((3, 0), np.int32)]) == np.uint8


def test_odd_values_come_back(world, tmp_path):
    """Whatever a stream may hold one day: fields of no width, weights that are no counts, ids as large as they get."""
    made = {name: array.copy() for name, array in batch.synthetic(4, 12, 3, 100).items()}
    made["masked_weights"][:] = [0.5, -0.0, 2]
    made["positions"][0, 0] = 70000
    made["pair_weights"] = np.zeros((4, 0), np.float32)
    table = save_batches.write_table([made], 5, tmp_path, "train")
    held = batch_files.Saved(tmp_path, {"vocabulary": 100})
    read = batch_files.Reader(held, json.loads(json.dumps(table))).read(np.full(4, 5), np.arange(4))
    assert_same([made], [read])


@pytest.mark.slow
def test_pretrain_gives_the_same_bits(world, undisturbed, tmp_path):
    settings = world.load(batches=world.saved, store=tmp_path / "nowhere")
    assert train.pretrain(settings, tmp_path / "run") == 0
    assert_same_run(undisturbed, tmp_path / "run")
    assert not (tmp_path / "nowhere").exists()
    measured = [evaluate_run(run) for run in (undisturbed, tmp_path / "run")]
    assert measured[0] == measured[1]


@pytest.mark.parametrize("order", [("store", "saved"), ("saved", "store")])
def test_a_run_goes_on_from_the_other_kind(world, undisturbed, tmp_path, order, monkeypatch):
    places = {"store": {}, "saved": {"batches": world.saved, "store": tmp_path / "nowhere"}}
    whole_split = evaluate.over

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return whole_split(*arguments)

    monkeypatch.setattr(evaluate, "over", interrupted)
    assert train.pretrain(world.load(**places[order[0]]), tmp_path / "run") == 75
    monkeypatch.undo()
    assert train.pretrain(world.load(**places[order[1]]), tmp_path / "run") == 0
    jax.tree.map(
        np.testing.assert_array_equal,
        load_model.open_run(undisturbed).params,
        load_model.open_run(tmp_path / "run").params,
    )


@pytest.mark.slow
def test_one_device(world, tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    for name, places in (("a", {}), ("b", {"batches": world.saved})):
        assert train.pretrain(world.load(**places), tmp_path / name) == 0
    assert json.loads((tmp_path / "b/run.json").read_text())["mesh"]["data"] == 1
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_only_the_steps_that_are_left_are_needed(world, undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    for path in (tmp_path / "run/checkpoints").iterdir():
        if path.name not in ("6",):
            shutil.rmtree(path)
    (tmp_path / "run/summary.json").unlink()
    world.save(6, 10, tmp_path / "saved")
    assert train.pretrain(world.load(batches=tmp_path / "saved"), tmp_path / "run") == 0
    assert_same_run(undisturbed, tmp_path / "run")


def test_another_store(world, undisturbed, tmp_path):
    """One of the same config but of other text: the fingerprint decides."""
    other = World(tmp_path)
    write_corpus(tmp_path / "corpus.txt", documents=60, seed=1)
    other.save(0, 10, tmp_path / "saved")
    manifest = json.loads((tmp_path / "saved/manifest.json").read_text())
    manifest["made_from"]["corpus.source"] = world.settings["corpus.source"]
    rewrite(tmp_path / "saved", manifest)
    shutil.copytree(undisturbed, tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    line = refused(world, tmp_path, batches=tmp_path / "saved")
    assert f"config.batches={tmp_path}/saved: not of the store" in line


# What an accelerator's image often lacks, and what comes with it.
BLOCKED = ("tensorflow", "tensorflow_datasets", "keras", "tf_keras", "tensorboard", "datasketch")
BLOCKER = f"""
import sys
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec

def find_others(name, path=None, target=None):
    return None if name.partition(".")[0] in {BLOCKED} else find_spec(name, path, target)

PathFinder.find_spec = find_others
"""
COMMANDS = """
import json, sys
from bert_jax.cli import main

for expected, *command in json.loads(sys.argv[1]):
    code = main(command)
    print(command[0], code, flush=True)
    if code != expected:
        sys.exit(f"expected {expected}")
assert not any(name.partition(".")[0] == "tensorflow" for name in sys.modules)
"""


def run_without_tensorflow(directory, code, *arguments):
    (directory / "blocked").mkdir(exist_ok=True)
    (directory / "blocked/sitecustomize.py").write_text(BLOCKER)
    paths = [str(directory / "blocked"), *sys.path]
    found = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment = os.environ | processes.cache() | found
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True)


@pytest.mark.slow
def test_no_tensorflow_is_needed(world, tmp_path):
    """A process of its own, on one device, in which TensorFlow cannot be imported and no store is there."""
    for name in BLOCKED[:2]:
        assert "No module named" in run_without_tensorflow(tmp_path, f"import {name}").stderr
    shutil.copytree(world.saved, tmp_path / "saved")
    places = {"store": "nowhere", "batches": "saved"}
    commands = [
        [0, "pretrain", *world.arguments("--workdir", "run", **places)],
        [0, "status", "--workdir", "run"],
        [0, "evaluate", "--workdir", "run"],
        [0, "predict", "--model", "run", "kas [MASK]"],
        [0, "export", "--workdir", "run", "--output", "exported"],
        [0, "inspect", *world.arguments("--step", "7", **places)],
        [0, "benchmark", *world.arguments("--steps", "1", "--phase", "long", **places)],
        [0, "benchmark", *world.arguments("--steps", "1", "--phase", "long", store="nowhere")],
        [2, "pretrain", *world.arguments("--workdir", "new")],
        [2, "inspect", *world.arguments("--step", "1", store="nowhere")],
        [
            2,
            "evaluate",
            "--workdir",
            "run",
            f"--config.store={world.settings['store']}",
            "--config.batches=",
        ],
    ]
    process = run_without_tensorflow(tmp_path, COMMANDS, json.dumps(commands))
    assert process.returncode == 0, process.stdout + process.stderr
    refused = [line for line in process.stderr.splitlines() if line.startswith("bert-jax: ")]
    assert len(refused) == 3 and all("TensorFlow" in line for line in refused)
    assert (tmp_path / "exported/model.safetensors").is_file()
    assert json.loads((tmp_path / "run/summary.json").read_text())["heldout"]["step"] == 10
    assert not (tmp_path / "nowhere").exists()
