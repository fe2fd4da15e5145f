"""`import`: the parameters are unchanged, and training continues from them after an evaluation at step 0."""

import json

import numpy as np
import pytest
from kits import external_models
from kits.corpora import make_text, prepare, write
from kits.malformed_inputs import FORMATS, refused
from kits.malformed_inputs import write as write_model
from kits.runs import assert_same_bits, lines

from bert_jax import cli, config, train
from bert_jax.commands import export, import_model
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.evaluate import evaluate_run
from bert_jax.inference import predict
from bert_jax.runs import status
from bert_jax.runs.workdir import Workdir


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return external_models.write_huggingface(tmp_path_factory.mktemp("outside") / "model")


def test_an_import_is_a_run_at_step_0(source, tmp_path):
    workdir = tmp_path / "run"
    values = import_model.import_model(source, workdir, None, ["seed=7"])
    files = {"config.json", "run.json", "status.json", "tokenizer", "checkpoints"}
    assert {path.name for path in workdir.iterdir()} == files
    run, original = open_model.open_model(workdir), open_model.open_model(source)
    assert_same_bits(run.params, original.params)
    assert status.describe(status.status(workdir)).startswith("imported, step 0 of 1000")
    command = f"bert-jax pretrain --config {workdir / 'config.json'} --workdir {workdir}"
    assert import_model.describe(values).endswith(command)
    assert run.step == 0 and run.tokenizer.fingerprint == original.tokenizer.fingerprint
    assert values["fresh"] == [] and values["imported"]["format"] == "huggingface"
    saved = config.load(str(workdir / "config.json"))
    assert (saved.seed, saved.dtype, saved.store) == (7, "auto", str(workdir / "store"))
    assert (saved.model.activation, saved.model.layers) == ("gelu", 2)
    text = "the old [MASK] walks."
    assert predict.predict(workdir, [text]) == predict.predict(source, [text])
    refused("import", "--source", workdir, "--workdir", tmp_path / "again")  # already a run
    workdir.rename(tmp_path / "moved")
    moved = config.load(str(tmp_path / "moved/config.json"))
    assert moved.tokenizer.path == str(tmp_path / "moved/tokenizer/vocab.txt")


def test_the_report_for_an_imported_run_names_the_run(source, tmp_path, capsys, monkeypatch):
    """A new run elsewhere with its config says that it starts without its parameters."""
    monkeypatch.chdir(tmp_path)
    corpus = write(tmp_path / "corpus.txt", make_text(60))
    settings = [f"corpus.source={corpus}", "corpus.heldout=0.1"]
    import_model.import_model(source, "runs/started", None, settings)
    file = "runs/started/config.json"
    for name in (file, "runs/started"):
        assert cli.main(["prepare", "--config", name, "--json", "report.json"]) == 0
        command = f"pretrain --config {name} --workdir runs/started"
        assert command in capsys.readouterr().out
        recommended = json.loads((tmp_path / "report.json").read_text())["recommended"]
        assert [run["arguments"] for run in recommended] == [["--config", name]]
    started = []
    monkeypatch.setattr(train, "pretrain", lambda config, *_: started.append(config) or 0)
    others = ("--config.init_from=runs/started",), ()
    for keys in others:
        assert cli.main(["pretrain", "--config", file, "--workdir", "runs/other", *keys]) == 0
        assert ("runs/started" in capsys.readouterr().err) == (not keys)
    assert cli.main(["pretrain", "--config", file, "--workdir", "runs/started"]) == 0
    assert "runs/started" not in capsys.readouterr().err and len(started) == 3


@pytest.mark.full
@pytest.mark.slow
def test_training_continues_from_an_import(source, tmp_path):
    """From its loss at step 0, after an evaluation. Keys of the model are fixed, all others may change."""
    corpus, workdir = write(tmp_path / "corpus.txt", make_text(60)), tmp_path / "run"
    keys = external_models.SETTINGS | {"corpus.source": corpus, "store": tmp_path / "store"}
    settings = [f"{key}={value}" for key, value in keys.items()]
    import_model.import_model(source, workdir, config.load("base"), settings)
    file = str(workdir / "config.json")
    for change in ("model.width=32", "model.activation=gelu_tanh", "task.pair_task=none"):
        with pytest.raises(BadInput, match=change.split("=")[0]):
            train.pretrain(config.load(file, [change]), workdir)
    other = [f"store={tmp_path / 'other'}", "tokenizer.path=", "tokenizer.size=200"]
    with pytest.raises(BadInput, match="tokenizer"):
        train.pretrain(config.load(file, other), workdir)
    prepare(config.load(file))
    imported = evaluate_run(workdir)
    free = ["model.dropout=0.2", "optimizer.learning_rate=2e-2"]
    for steps in (4, 8):
        longer = config.load(file, [*free, f"phases.main.steps={steps}"])
        assert train.pretrain(longer, workdir) == 0
        assert open_model.open_model(workdir).step == steps
    step_0, *others = lines(workdir)
    assert (step_0["step"], step_0["split"]) == (0, "heldout")
    assert step_0["loss"] == pytest.approx(imported["loss"], rel=1e-6)
    assert all(line["step"] > 0 for line in others)
    assert others[-1]["split"] == "heldout" and others[-1]["loss"] < step_0["loss"]
    info = json.loads((workdir / "run.json").read_text())
    assert info["imported"]["source"] == "model" and "store_fingerprint" in info


@pytest.mark.parametrize("key", ["tokenizer.size=7", "model.layers=3", "workdir"])
def test_nothing_is_written_for_bad_input(source, tmp_path, key):
    """Damaged sources: tests/convert/test_external_model.py."""
    if key == "workdir":
        (tmp_path / "run").mkdir()
        (tmp_path / "run/a file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    keys = [] if key == "workdir" else [f"--config.{key}"]
    line = refused("import", "--source", source, "--workdir", tmp_path / "run", *keys)
    assert key.partition("=")[0] in line and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("form", FORMATS)
def test_import_and_export_are_bitwise(tmp_path, form):
    """An import that is exported has the tensors of the source; the export has the parameters of the run."""
    source = write_model(form, tmp_path / "model")
    import_model.import_model(source, tmp_path / "run")
    export.export(Workdir(tmp_path / "run"), tmp_path / "out", form)
    original, back = open_model.read_source(source), open_model.read_source(tmp_path / "out")
    assert original.shapes == back.shapes and len(original.shapes) == 46
    for name in original.shapes:
        np.testing.assert_array_equal(original.load(name), back.load(name), err_msg=name)
    run, out = open_model.open_model(tmp_path / "run"), open_model.open_model(tmp_path / "out")
    assert_same_bits(run.params, out.params)
    assert back.tokenizer.fingerprint == original.tokenizer.fingerprint
    assert back.settings == original.settings
