"""Saved batches are bitwise those of the store, for any steps and hosts; those of another config, damaged and missing
ones are refused in one line."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from kits import malformed_inputs, processes, runs, saved_batches
from kits.damage import flip_bit
from kits.saved_batches import refused, rewrite
from kits.small import write_corpus

from bert_jax import config, train
from bert_jax.cli import main
from bert_jax.commands import inspect_batch
from bert_jax.data import batch, batch_files
from bert_jax.errors import BadInput
from bert_jax.tasks import feed

world, half_a_run = saved_batches.world, saved_batches.half_a_run


def both(world, **changes):
    """Returns the store's feed and the saved feed of a config, and its phases."""
    settings = world.load(batches=world.saved, **changes)
    from_store = feed.open_feed(world.load(**changes))
    return from_store, feed.open_feed(settings, 0), config.phases(settings)


def assert_same(batches, others):
    for one, other in zip(batches, others, strict=True):
        assert set(one) == set(other)
        assert all(one[name].dtype == other[name].dtype for name in one)
        assert batch.digest(one) == batch.digest(other)


@pytest.mark.parametrize("positions", [None, [1, 0, 3]])
def test_every_batch_is_read_back_bitwise(world, positions):
    from_store, from_saved, phases = both(world)
    for phase in phases:
        for first in (phase.first, phase.first + 2):
            steps = phase, first, phase.stop, positions
            assert_same(from_store.train(*steps), from_saved.train(*steps))


@pytest.mark.parametrize("size, positions", [(6, [5, 0]), (64, None)])
def test_heldout_rows_are_the_same_in_batches_of_any_size(world, size, positions):
    from_store, from_saved, phases = both(world)
    for phase in phases:
        pairs = (f.evaluation(phase, "heldout", size, positions) for f in (from_store, from_saved))
        pairs = list(zip(*pairs, strict=True))
        assert len(pairs) == -(-9 // size)
        for begin, (one, other) in zip(range(0, 9, size), pairs, strict=True):
            real = begin + one["rows"] < 9
            for name in one:
                np.testing.assert_array_equal(one[name][real], other[name][real])
            for name in ("rows", "row_weights", "masked_weights", "pair_weights"):
                np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.slow
def test_inspect_saves_the_batches_that_it_prints(world, tmp_path, capsys):
    """`inspect --step` reports the same digest for the store and for saved batches."""
    options = "--steps", "4:7", "--save", tmp_path / "new", "--json", tmp_path / "values.json"
    assert main(["inspect", *world.arguments(*options)]) == 0
    values = json.loads((tmp_path / "values.json").read_text())
    assert values["steps"] == batch_files.read_manifest(tmp_path / "new")["steps"] == [4, 7]
    for step in (5, 6):
        shown = set()
        for batches in ("", world.saved, tmp_path / "new"):
            capsys.readouterr()
            arguments = world.arguments("--step", step, "--json", "-", batches=batches)
            assert main(["inspect", *arguments]) == 0
            shown.add(json.loads(capsys.readouterr().out)["sha256"])
        assert len(shown) == 1


def save(settings, directory):
    inspect_batch.save(runs.load(settings), 10, 20, directory, lambda line: None)


@pytest.mark.slow
def test_a_run_resumes_from_saved_batches(finished, half_a_run, tmp_path):
    """A run started from the store ends with the same bits; only its remaining steps are saved."""
    settings, undisturbed = finished
    save(settings, tmp_path / "saved")
    paths = {"batches": tmp_path / "saved", "store": tmp_path / "nowhere"}
    assert train.pretrain(runs.load(settings, **paths), half_a_run) == 0
    runs.assert_same_bits(runs.params(undisturbed), runs.params(half_a_run))
    assert not (tmp_path / "nowhere").exists()


def test_batches_of_another_store_are_refused(finished, half_a_run, tmp_path):
    """The config is the same but the text differs: the fingerprint decides."""
    settings, saved = finished[0], tmp_path / "saved"
    write_corpus(tmp_path / "corpus.txt", documents=60, seed=1)
    source = {"corpus.source": str(tmp_path / "corpus.txt")}
    save(settings | source | {"store": tmp_path / "store"}, saved)
    recorded = batch_files.read_manifest(saved)["config"]
    rewrite(saved, {"config": recorded | {"corpus.source": settings["corpus.source"]}})
    with pytest.raises(BadInput, match=f"config.batches={saved}"):
        train.pretrain(runs.load(settings, batches=saved), half_a_run)


# TensorFlow, which images for accelerators often lack, the packages installed with it, and pyarrow.
BLOCKED = ("tensorflow", "tensorflow_datasets", "keras", "tf_keras", "tensorboard", "pyarrow")
COMMANDS = f"""
import json, sys
sys.modules.update(dict.fromkeys({BLOCKED}))  # none of them can be imported
from bert_jax.cli import main
for expected, *command in json.loads(sys.argv[1]):
    if (code := main(command)) != expected:
        sys.exit(f"{{command}}: {{code}}, not {{expected}}")
"""


@pytest.mark.full
def test_saved_batches_need_no_tensorflow(world, tmp_path):
    """Without TensorFlow, a process trains from saved batches, and refuses to use a store."""
    paths = {"store": "nowhere", "batches": world.saved}
    commands = [
        [0, "pretrain", *world.arguments("--workdir", "run", **paths)],
        [0, "predict", "--model", "run", "kas [MASK]"],
        [0, "export", "--workdir", "run", "--output", "exported"],
        [0, "inspect", *world.arguments("--step", "7", **paths)],
        [0, "benchmark", *world.arguments("--steps", "1", store="nowhere")],
        [2, "pretrain", *world.arguments("--workdir", "new")],
    ]
    command = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    environment = os.environ | processes.cache()
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    (line,) = [line for line in process.stderr.splitlines() if line.startswith("bert-jax: ")]
    assert "TensorFlow" in line and not (tmp_path / "nowhere").exists()
    assert json.loads((tmp_path / "run/summary.json").read_text())["heldout"]["step"] == 10


# --- Refusals -------------------------------------------------------------------------------------


TRAIN = "short/000000000000.npz"


@pytest.fixture
def copy(world, tmp_path):
    return shutil.copytree(world.saved, tmp_path / "copy")


OTHERS = """
    seed=7 phases.short.batch=8 phases.short.steps=5 corpus.source=elsewhere task.masking=span
    phase_order=long,short tokenizer.size=300
""".split()


@pytest.mark.parametrize("other", OTHERS)
def test_batches_of_another_config_are_refused(world, tmp_path, other):
    key, value = other.split("=")
    assert key in refused(world, tmp_path, batches=world.saved, **{key: value})


def test_keys_that_do_not_affect_batches_may_differ(world, tmp_path):
    source = shutil.copy(world.settings["corpus.source"], tmp_path / "text.txt")
    changes = {"corpus.source": source}
    changes |= {"mesh.fsdp": 2, "optimizer.learning_rate": 0.1, "model.layers": 3, "log.every": 1}
    changes |= {"phases.long.steps": 3}
    opened = feed.open_feed(world.load(batches=world.saved, **changes), 0)
    assert opened.path == world.saved


@pytest.mark.slow
def test_steps_that_are_not_saved_are_refused(world, tmp_path):
    world.save(1, 8, tmp_path / "saved")
    for path, changes in ((tmp_path / "saved", {}), (world.saved, {"phases.long.steps": 12})):
        assert str(path) in refused(world, tmp_path, batches=path, **changes)


def test_more_heldout_rows_than_saved_are_refused(world, tmp_path):
    line = refused(world, tmp_path, batches=world.saved, **{"evaluate.rows": 10})
    assert "config.evaluate.rows=10" in line
    world.save(0, 10, tmp_path / "all", **{"evaluate.rows": 10**6})
    feed.open_feed(world.load(batches=tmp_path / "all", **{"evaluate.rows": 10**7}), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage, named",
    [
        (lambda path: os.truncate(path / TRAIN, 999), TRAIN),
        (lambda path: flip_bit(path / TRAIN), TRAIN),
        (lambda path: rewrite(path, {"format": 1}), "manifest.json"),
        (shutil.rmtree, "manifest.json"),
    ],
)
def test_damaged_files_are_named(world, copy, damage, named):
    damage(copy)
    line = refused(world, copy.parent, batches=copy)
    assert named in line and str(copy) in line


def test_a_flipped_bit_is_detected_without_hashes(world, copy):
    settings = world.load(batches=copy, verify_store=False)
    opened, phase = feed.open_feed(settings, 0), config.phases(settings)[0]
    flip_bit(copy / TRAIN, 1000)
    with pytest.raises(BadInput, match=TRAIN):
        list(opened.train(phase, 0, 1))


@pytest.mark.parametrize(
    "options, named",
    [
        (["--steps", "5:2", "--save", "new"], "5:2"),
        (["--steps", "0:2", "--save", "there"], "--save there"),
        (["--steps", "0:2", "--save", "new", "--config.batches=there"], "config.batches=there"),
    ],
)
def test_invalid_options_are_refused(world, tmp_path, monkeypatch, options, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("")
    assert named in malformed_inputs.refused("inspect", *world.arguments(*options))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]
