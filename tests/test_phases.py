"""A batch that grows phase by phase: its micro-batches on any mesh, its rows and its schedule."""

import json
import shutil

import jax
import numpy as np
import pytest
from kits.running import lines
from kits.small import SMALL, overrides, write_corpus

from bert_jax import config, optimizer, train
from bert_jax.commands import load_model
from bert_jax.tokenizers import tokenizer

pytestmark = pytest.mark.slow  # each compiles programs for eight devices

BATCHES = {"small": 8, "medium": 16, "large": 32}
LENGTHS = {"length": 32, "predictions": 5}


def load(directory, **changes):
    """The shipped config, made small: its first three phases with a 32nd of their rows."""
    settings = {key: value for key, value in SMALL.items() if not key.startswith("phases")}
    settings |= {
        "corpus.source": str(directory / "corpus.txt"),
        "store": str(directory / "store"),
        "phase_order": ",".join(BATCHES),
        "optimizer.learning_rate": 1e-3,
        "log.every": 1,
        "evaluate.every": 0,
        "checkpoint.every": 3,
        "checkpoint.keep": 9,
        "train.rows_per_chip": 1,
        "model.layers": 1,
        "evaluate.batch": 8,
    }
    settings |= {f"phases.{name}.batch": batch for name, batch in BATCHES.items()}
    settings |= {f"phases.{name}.{key}": x for name in BATCHES for key, x in LENGTHS.items()}
    settings |= {f"phases.{name}.steps": 3 for name in BATCHES}
    loaded = config.find("bert_base_batch_warmup")
    model = config.find("demo").model
    with loaded.unlocked():
        loaded.model = model
        del loaded.phases.short, loaded.phases.long
    for override in overrides(settings | changes):
        config.apply(loaded, override)
    config.check(loaded)
    return loaded


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory with the store, and an undisturbed run on eight devices."""
    directory = tmp_path_factory.mktemp("phases")
    write_corpus(directory / "corpus.txt", documents=60)
    assert train.pretrain(load(directory), directory / "run") == 0
    return directory


def phases(workdir) -> dict:
    known = json.loads((workdir / "run.json").read_text())["phases"]
    return {name: (known[name]["micro_batches"], known[name]["rows_per_chip"]) for name in BATCHES}


def test_the_batch_grows_and_the_rows_a_device_computes_do_not(world):
    assert phases(world / "run") == {"small": (1, 1), "medium": (2, 1), "large": (4, 1)}
    train = [line for line in lines(world / "run") if line["split"] == "train"]
    rows = [round(line["rows_per_second"] * line["seconds"]) for line in train]
    assert rows == [8] * 3 + [16] * 3 + [32] * 3


def test_the_schedule_goes_on_in_steps(world):
    rate = optimizer.schedule("linear", 1e-3, SMALL["schedule.warmup"], 9)
    found = [line["learning_rate"] for line in lines(world / "run") if line["split"] == "train"]
    np.testing.assert_allclose(found, [rate(step) for step in range(9)], rtol=1e-6)


def test_the_same_command_on_fewer_devices_goes_on_alike(world, tmp_path, capsys):
    """Rows over two devices instead of eight, from the third step on: other micro-batches, the same numbers."""
    shutil.copytree(world / "run", tmp_path / "run")
    for step in (6, 9):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / str(step))
    assert train.pretrain(load(world, **{"mesh.tensor": 4}), tmp_path / "run") == 0
    assert phases(tmp_path / "run") == {"small": (4, 1), "medium": (8, 1), "large": (16, 1)}
    said = capsys.readouterr().out
    assert "phase large: 3 steps of 32 rows of 32 tokens in 16 micro-batches" in said
    expected, found = lines(world / "run"), lines(tmp_path / "run")
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for a, b in zip(found, expected, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    before, after = (load_model.open_run(place / "run").params for place in (world, tmp_path))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), after, before)


def test_a_later_phase_of_the_same_length_draws_other_rows(world):
    from bert_jax.data import store, stream

    opened = store.open_store(world / "store")
    starts = tokenizer.load(opened.path / "tokenizer").word_starts
    seen = []
    for name, batch in BATCHES.items():
        spec = stream.spec(load(world), name)
        batches = stream.train_batches(opened, starts, spec, 0, 3, np.arange(batch))
        seen.append({row.tobytes() for arrays in batches for row in arrays["tokens"]})
    assert [len(rows) for rows in seen] == [3 * batch for batch in BATCHES.values()]
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])


def test_the_shipped_config_reads_as_many_rows_as_bert_base():
    def rows(name):
        return sum((p.last - p.first) * p.batch for p in config.phases(config.load(name)))

    assert rows("bert_base_batch_warmup") == rows("bert_base") == 256_000_000
