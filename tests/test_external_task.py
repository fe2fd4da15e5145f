"""The modules of docs/extending.md: a task, a model and an objective that no file of the package knows train, are
evaluated, planned and divided over devices as those of the package (kits/scored_task.py is the task with scores)."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from kits import corpora, runs
from kits.malformed_inputs import refused
from kits.objectives import assert_halves_add_up
from kits.paths import ROOT
from kits.runs import assert_same_run, lines, load, params, pretraining
from kits.slices import needs_libtpu
from kits.small import SMALL

from bert_jax import config
from bert_jax.cli import main
from bert_jax.commands import inspect_batch
from bert_jax.convert import open_model
from bert_jax.data import batch_files
from bert_jax.data import store as stores
from bert_jax.evaluate import evaluate_run
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain

OWN = ("model.", "phases.main.max_")
KEYS = {key: value for key, value in SMALL.items() if not key.startswith(OWN)} | {
    "model.name": "my_code.model",
    "objective.name": "my_code.objective",
    "task.name": "kits.scored_task",
    "phases.main.batch": 32,
    "optimizer.learning_rate": 1e-2,
    "evaluate.rows": 1000,
}
MEANS = {"loss": "nats", "label_loss": "nats", "label_accuracy": "accuracy"}
SPLITS = "heldout", "later"
LABELS = "first of a document", "later"


def write_modules(directory) -> None:
    """Writes the modules of the page to the package `my_code`."""
    page = (ROOT / "docs/extending.md").read_text()
    modules = re.findall(r'```python\n("""my_code/(\w+)\.py:.*?)```', page, re.DOTALL)
    assert {name for _, name in modules} == {"task", "objective", "model"}
    (directory / "my_code").mkdir()
    for text, name in modules:
        (directory / f"my_code/{name}.py").write_text(text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(settings, workdir) of an undisturbed run of 20 steps on eight devices."""
    directory = tmp_path_factory.mktemp("external")
    write_modules(directory)
    texts = [f"dog dog dog {text}" for text in corpora.make_text(150)]
    corpora.write(directory / "corpus.txt", texts)
    settings = KEYS | {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)  # of new processes
        assert pretrain(load(settings), directory / "run") == 0
        yield settings, directory / "run"


def test_it_trains_and_is_evaluated_on_its_splits(finished):
    """The labels are filled from the data; a config without them resumes the run."""
    settings, workdir = finished
    found = {"train": [], "heldout": [], "later": []}
    for line in lines(workdir):
        found[line["split"]].append(line["loss"])
    assert [len(losses) for losses in found.values()] == [4, 2, 2]
    assert found["train"][-1] < found["train"][0] - 0.1
    assert config.load(str(workdir / "config.json")).task.labels == LABELS
    assert load(settings).task.labels == () and pretrain(load(settings), workdir) == 0
    assert "labels" in refused(*pretraining(settings, workdir, **{"task.labels": "later,first"}))


def test_its_loss_is_a_sum_over_rows(finished):
    run = open_model.open_model(finished[1])
    (phase,) = config.phases(run.config)
    assert_halves_add_up(run.objective, run.params, next(open_feed(run.config).train(phase, 0, 1)))


@pytest.mark.parametrize("rows, batch", [(1000, 24), (1000, 64), (20, 8)])
def test_means_and_scores_are_of_the_same_rows(finished, rows, batch):
    """Of those of the split alone, in their order; rows that only fill a batch count nowhere."""
    values = evaluate_run(finished[1], [f"evaluate.rows={rows}", f"evaluate.batch={batch}"])
    split = stores.open_store(finished[0]["store"]).splits["heldout"]
    sizes = np.diff(split.sentence_ends, prepend=0)
    size = {"heldout": (sizes >= 3).sum()}
    size["later"] = size["heldout"] - len(split.document_ends)
    for name in SPLITS:
        assert values[f"{name}/scored"] == min(rows, size[name])
        for mean, score in MEANS.items():
            assert values[f"{name}/{mean}"] == pytest.approx(values[f"{name}/{score}"], rel=1e-5)
        if rows == 1000:
            last = [line for line in lines(finished[1]) if line["split"] == name][-1]
            assert values[f"{name}/loss"] == pytest.approx(last["loss"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "devices, changes",
    [
        pytest.param(8, {"train.micro_batches": 4}, marks=pytest.mark.full),
        pytest.param(1, {}, marks=pytest.mark.full),
        (8, {"mesh.fsdp": 4}),
    ],
)
def test_the_division_of_a_batch_does_not_matter(finished, tmp_path, monkeypatch, devices, changes):
    """Compared with eight devices that all have the parameters, and one micro-batch."""
    settings, undisturbed = finished
    runs.use_devices(monkeypatch, devices)
    assert pretrain(load(settings, **changes), tmp_path / "run") == 0
    for split in ("train", *SPLITS):
        assert_same_run(tmp_path / "run", undisturbed, split)


def test_commands_know_it(finished, capsys):
    """`inspect` explains no marks of masks and pairs; it shows a batch of the page's own task."""
    settings, workdir = finished
    path = str(workdir / "config.json")
    assert main(["config", "--config", path]) == 0
    assert "task.least_tokens = 3" in capsys.readouterr().out
    assert main(["benchmark", "--config", path, "--steps", "1"]) == 0
    assert "main: " in capsys.readouterr().out
    own = load(settings, **{"task.name": "my_code.task"})
    shown = inspect_batch.inspect(own, 3, 2, lambda line: None)
    assert shown["pair_ratio"] is None and shown["masked_per_row"] is None
    assert len(shown["rows"]) == 2 and shown["rows"][0].startswith("row 0: [CLS] ")
    changed = "config.task.least_tokens=0"
    assert refused("config", "--config", path, f"--{changed}").startswith(changed)


def test_what_it_cannot_do_is_refused(finished, tmp_path):
    """Other programs have no such model, it has no masks, and saved batches have no rows to score."""
    run = finished[1]
    output = tmp_path / "output"
    assert "my_code.model" in refused("export", "--workdir", run, "--output", output)
    assert "my_code.objective" in refused("predict", "--model", run, "a [MASK]")
    files = "--input", run / "tokenizer/vocab.txt", "--output", tmp_path / "vectors.npy"
    assert "my_code.model" in refused("features", "--model", run, *files)
    saving = "inspect", "--config", run / "config.json", "--steps", "0:2", "--save", output
    assert "kits.scored_task" in refused(*saving)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_saved_batches_of_it_have_its_labels(finished, tmp_path, monkeypatch):
    """For a machine that has no store; the bits are the same."""
    from kits import scored_task  # needs the modules of the page

    settings = finished[0]
    make = scored_task.make
    unscored = lambda *inputs: replace(make(*inputs), score=None)  # noqa: E731
    monkeypatch.setattr(scored_task, "make", unscored)
    batch_files.save(open_feed(load(settings)), 0, 20, tmp_path / "saved", lambda line: None)
    (tmp_path / "run").mkdir()
    keys = {"batches": tmp_path / "saved", "store": tmp_path / "missing"}
    assert pretrain(load(settings, **keys), tmp_path / "run") == 0
    runs.assert_same_bits(params(tmp_path / "run"), params(finished[1]))
    assert config.load(str(tmp_path / "run/config.json")).task.labels == LABELS


@needs_libtpu
@pytest.mark.slow
def test_its_step_is_planned(finished, capsys):
    path = str(finished[1] / "config.json")
    assert main(["plan", "--config", path, "--topology", "v5e:2x2", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["phases"]["main"]["fits"]
