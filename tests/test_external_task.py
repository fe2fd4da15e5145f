"""A task, a model and an objective outside of the package (tests/external): all that holds for pretraining holds for
them, and no file of the package knows them.

The task labels sentences: it has batch keys, config keys, two evaluation splits, rows of packed sentences, and a score,
F1, which is no mean over rows.
"""

import json
import signal
from contextlib import nullcontext

import numpy as np
import pytest
from external import task
from kits import faulty_program, processes
from kits.attention import GPU
from kits.malformed_inputs import refused
from kits.runs import (
    assert_same_bits,
    assert_same_run,
    lines,
    load,
    params,
    pretraining,
    use_devices,
)
from kits.slices import needs_libtpu
from kits.small import SMALL, write_corpus

from bert_jax import build
from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import benchmark
from bert_jax.commands.evaluate import evaluate_run
from bert_jax.commands.inspect_batch import inspect
from bert_jax.data import batch_files
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.models import attention
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain

THRESHOLD = 8
KEYS = {
    key: value
    for key, value in SMALL.items()
    if not key.startswith("model.") and not key.endswith(".max_predictions")
} | {
    "model.name": "external.model",
    "objective.name": "external.objective",
    "task.name": "external.task",
    "task.threshold": THRESHOLD,
    "phases.main.batch": 32,
    "evaluate.rows": 1000,
}
METRICS = "loss", "label_loss", "label_accuracy", "f1", "scored"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(settings, workdir) of an undisturbed run of 20 steps on eight devices."""
    directory = tmp_path_factory.mktemp("external")
    write_corpus(directory / "corpus.txt", documents=120)
    settings = KEYS | {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    assert pretrain(load(settings), directory / "run") == 0
    return settings, directory / "run"


def saved_config(workdir):
    return configs.load(str(workdir / "config.json"))


def expected(workdir, split: str) -> dict:
    """Returns the metrics of a run on a split by NumPy, one sentence at a time."""
    config, trained = saved_config(workdir), params(workdir)
    store, (phase,) = stores.open_store(config.store), configs.phases(config)
    words, dense = trained["encoder"]["embedder"]["words"], trained["encoder"]["dense"]
    tokens, special = store.splits["heldout"].tokens, store.manifest["special"]
    nats, said, true = [], [], []
    for start, size, *_, label in tasks.make(config, store).rows(phase, split, 0)[:, 0]:
        ids = [special["cls"], *tokens[start : start + size], special["sep"]]
        x = np.asarray(words, np.float64)[ids].sum(0)
        x = np.maximum(x @ dense["kernel"] + dense["bias"], 0)
        logits = x @ trained["label"]["kernel"] + trained["label"]["bias"]
        nats.append(np.log(np.exp(logits).sum()) - logits[label])
        said.append(int(logits.argmax()))
        true.append(int(size >= THRESHOLD))
    pairs = list(zip(said, true, strict=True))
    hits, misses = pairs.count((1, 1)), pairs.count((0, 1)) + pairs.count((1, 0))
    return {
        "loss": np.mean(nats),
        "label_loss": np.mean(nats),
        "label_accuracy": np.mean([a == b for a, b in pairs]),
        "f1": 2 * hits / max(1, 2 * hits + misses),
        "scored": len(pairs),
    }


def test_it_trains_and_is_evaluated_on_its_splits(finished):
    """The labels are filled from the data; a config without them resumes the run."""
    settings, workdir = finished
    found = {"train": [], "heldout": [], "short": []}
    for line in lines(workdir):
        found[line["split"]].append(line["loss"])
    assert [len(losses) for losses in found.values()] == [4, 2, 2]
    assert found["train"][-1] < found["train"][0] - 0.1
    saved = json.loads((workdir / "config.json").read_text())
    assert saved["task"]["labels"] == ["short", "long"]
    assert load(settings).task.labels == () and pretrain(load(settings), workdir) == 0
    assert "labels" in refused(*pretraining(settings, workdir, **{"task.labels": "long,short"}))


@pytest.mark.parametrize("split", ["heldout", "short"])
def test_means_and_scores_equal_a_direct_computation(finished, split):
    last = [line for line in lines(finished[1]) if line["split"] == split][-1]
    direct = expected(finished[1], split)
    assert {name: last[name] for name in METRICS} == pytest.approx(direct, rel=1e-5)
    assert (last["f1"] > 0.5) == (split == "heldout")  # `short` has none to find


@pytest.mark.parametrize("rows", [24, 64])
def test_rows_that_only_fill_a_batch_count_nowhere(finished, rows):
    values = evaluate_run(finished[1], [f"evaluate.batch={rows}"])
    for split in ("heldout", "short"):
        direct = expected(finished[1], split)
        assert direct["scored"] % rows
        measured = {name: values[f"{split}/{name}"] for name in METRICS}
        assert measured == pytest.approx(direct, rel=1e-5)


def test_a_part_of_a_split_is_scored_on_its_own_rows(finished):
    """Were they not the rows of the outputs, F1 would be that of chance."""
    values = evaluate_run(finished[1], ["evaluate.rows=20", "evaluate.batch=8"])
    assert values["heldout/scored"] == 20 and values["heldout/f1"] > 0.5


@pytest.mark.parametrize(
    "devices, changes",
    [
        (8, {"train.micro_batches": 4}),
        (1, {}),
        (8, {"mesh.fsdp": 4}),
    ],
)
def test_the_division_of_a_batch_does_not_matter(finished, tmp_path, monkeypatch, devices, changes):
    """Compared with eight devices that all have the parameters, and one micro-batch."""
    settings, undisturbed = finished
    use_devices(monkeypatch, devices)
    assert pretrain(load(settings, **changes), tmp_path / "run") == 0
    for split in ("train", "heldout", "short"):
        assert_same_run(tmp_path / "run", undisturbed, split)


def test_packed_sentences_have_the_metrics_of_rows_of_one(finished, tmp_path):
    """Two share a row of twice the length; the last row may hold one only."""
    packed = {"task.packed": 2, "phases.main.length": 64, "phases.main.batch": 16}
    assert pretrain(load(finished[0], **packed), tmp_path / "run") == 0
    logged = {line["split"]: line for line in lines(tmp_path / "run")}
    assert logged["train"]["loss"] < lines(tmp_path / "run")[0]["loss"] - 0.1
    alone = evaluate_run(tmp_path / "run", ["task.packed=1", "phases.main.length=32"])
    for split in ("heldout", "short"):
        values = {name: alone[f"{split}/{name}"] for name in METRICS}
        assert values == pytest.approx({name: logged[split][name] for name in METRICS}, rel=1e-5)


def test_packed_rows_are_known_by_their_shapes(monkeypatch):
    """Its key for them has another name than that of sentence pairs; cuDNN's kernel has no packing."""
    model = {"name": "bert", "attention": "cudnn", "attention_dropout": 0.0}
    changes = {f"model.{key}": value for key, value in model.items()} | {"dtype": "bfloat16"}
    monkeypatch.setattr(attention, "device_and_kernels", lambda mesh=None: GPU)
    for packed in 1, 2:
        config = load(KEYS, **changes, **{"task.packed": packed})
        with pytest.raises(BadInput, match="2 packed") if packed == 2 else nullcontext():
            build.make_mesh(config, configs.phases(config))


@pytest.mark.full
def test_two_processes_have_the_numbers_of_one(finished, tmp_path):
    settings, undisturbed = finished
    ended = processes.run(pretraining(settings, tmp_path / "run"), tmp_path, 2, 4)
    assert [process.code for process in ended] == [0, 0], ended
    for split in ("train", "heldout", "short"):
        assert_same_run(tmp_path / "run", undisturbed, split)
    ours, theirs = (lines(run)[-1] for run in (tmp_path / "run", undisturbed))
    assert (ours["f1"], ours["scored"]) == (theirs["f1"], theirs["scored"])


@pytest.mark.slow
def test_killed_and_resumed_it_has_the_same_bits(finished, tmp_path):
    settings, undisturbed = finished
    fault = {faulty_program.FAULT: "0:step:14:kill"}
    command = pretraining(settings, tmp_path / "run")
    (ended,) = processes.run(command, tmp_path, 1, 8, **fault)
    assert ended.code == -signal.SIGKILL, ended
    assert [line["step"] for line in lines(tmp_path / "run")][-1] < 20
    assert pretrain(load(settings), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    for name in METRICS:
        assert lines(tmp_path / "run")[-1][name] == lines(undisturbed)[-1][name]


def test_commands_know_its_keys(finished, capsys):
    workdir = finished[1]
    config = workdir / "config.json"
    assert main(["config", "--config", str(config)]) == 0
    assert f"task.threshold = {THRESHOLD}" in capsys.readouterr().out
    assert main(["status", "--workdir", str(workdir)]) == 0
    assert "step 20 of 20" in capsys.readouterr().out
    assert main(["benchmark", "--config", str(config), "--steps", "1"]) == 0
    assert "main: " in capsys.readouterr().out
    named = refused("config", "--config", config, "--config.task.threshold=0")
    assert named.startswith("config.task.threshold=0")


def test_labels_are_filled_from_a_local_store_or_saved_batches(finished, tmp_path, monkeypatch):
    """For commands that prepare nothing, and for a machine that has no store."""
    settings = finished[0]
    benchmark.benchmark(load(settings), steps=1, log=lambda line: None)
    elsewhere = load(settings, store=tmp_path / "missing")
    with pytest.raises(BadInput, match=r"config.task.labels=\(\)"):
        benchmark.benchmark(elsewhere, steps=1, log=lambda line: None)
    make = task.make
    unscored = lambda *inputs: make(*inputs)._replace(score=None)  # noqa: E731
    monkeypatch.setattr(task, "make", unscored)
    batch_files.save(open_feed(load(settings)), 0, 20, tmp_path / "saved", lambda line: None)
    (tmp_path / "run").mkdir()
    keys = {"batches": tmp_path / "saved", "store": tmp_path / "missing"}
    assert pretrain(load(settings, **keys), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(finished[1]))


def test_a_batch_of_it_is_shown(finished, capsys):
    """It has neither masks nor pairs, so no marks are explained."""
    command = "inspect", "--config", str(finished[1] / "config.json"), "--step", "3"
    assert main(command) == 0 and "label" not in capsys.readouterr().out
    values = inspect(saved_config(finished[1]), 3, 2, lambda line: None)
    assert values["pair_ratio"] is None and values["masked_per_row"] is None
    assert len(values["rows"]) == 2 and values["rows"][0].startswith("row 0: [CLS] ")


def test_what_it_cannot_do_is_refused(finished, tmp_path):
    """Other programs have no such model, it has no masks, and saved batches have no rows to score."""
    run, output = finished[1], tmp_path / "output"
    assert "external.model" in refused("export", "--workdir", run, "--output", output)
    assert "external.objective" in refused("predict", "--model", run, "a [MASK]")
    (tmp_path / "lines.txt").write_text("a\n")
    files = "--input", tmp_path / "lines.txt", "--output", tmp_path / "vectors.npy"
    assert "external.model" in refused("features", "--model", run, *files)
    (tmp_path / "lines.txt").unlink()
    saving = "inspect", "--config", run / "config.json", "--steps", "0:2", "--save", output
    assert "external.task" in refused(*saving)
    assert not list(tmp_path.iterdir())


@needs_libtpu
@pytest.mark.slow
def test_its_step_is_planned(finished, capsys):
    config = str(finished[1] / "config.json")
    assert main(["plan", "--config", config, "--topology", "v5e:2x2", "--json", "-"]) == 0
    phase = json.loads(capsys.readouterr().out)["phases"]["main"]
    assert phase["fits"] and 0 < phase["real_token_share"] < 1
