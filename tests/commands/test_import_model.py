"""A model of others becomes a run: the same parameters, step 0 measured, and training that goes on from it."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from kits import outside
from kits.corpora import make_text, write
from kits.outside import SETTINGS
from kits.running import assert_same_bits, lines

from bert_jax import config, evaluate, step, train
from bert_jax.commands import export, import_model, load_model, predict
from bert_jax.commands.evaluate import evaluate_run
from bert_jax.data import feed
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import status


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return outside.write_huggingface(tmp_path_factory.mktemp("outside") / "model")


def settings_of(directory, **changes):
    corpus = write(directory / "corpus.txt", make_text(60))
    keys = SETTINGS | {"corpus.source": corpus, "store": directory / "store"} | changes
    return [f"{key}={value}" for key, value in keys.items()]


def short(*overrides):
    return config.load("base", ["phases.main.length=32", *overrides])


def loss_of(source, workdir) -> float:
    """The source's own parameters over the held-out rows of a run."""
    model, run = load_model.open_model(source), load_model.open_run(workdir)
    phase, mesh = config.phases(run.config)[0], meshes.make_mesh(run.config.mesh)
    params = jax.device_put(model.params, meshes.parameters(model.params, mesh))
    function = jax.jit(partial(step.evaluate, objective=model.objective))
    with jax.set_mesh(mesh):
        rows = evaluate.Heldout(feed.open_feed(run.config), run.config, phase, mesh)
        return evaluate.over(function, params, rows)["loss"]


def test_a_workdir_that_was_moved(source, tmp_path):
    import_model.import_model(source, tmp_path / "run", None, [])
    (tmp_path / "run").rename(tmp_path / "moved")
    found = config.load(str(tmp_path / "moved/config.json"))
    assert found.tokenizer.path == str(tmp_path / "moved/tokenizer/vocab.txt")


def test_a_run_needs_no_import(source, tmp_path):
    import_model.import_model(source, tmp_path / "run", None, [])
    with pytest.raises(BadInput, match="run: a run of bert_jax"):
        import_model.import_model(tmp_path / "run", tmp_path / "again")


def test_an_import_is_a_run_at_step_0(source, tmp_path):
    workdir = tmp_path / "run"
    values = import_model.import_model(source, workdir, None, ["seed=7"])
    assert {path.name for path in workdir.iterdir()} == {
        "config.json",
        "run.json",
        "status.json",
        "tokenizer",
        "checkpoints",
    }
    run, given = load_model.open_run(workdir), load_model.open_model(source)
    assert_same_bits(run.params, given.params)
    assert status.describe(status.status(workdir)).startswith("imported, step 0 of 1000")
    told = import_model.describe(values)
    assert "wordpiece, lower-cased" in told
    go_on = f"bert-jax pretrain --config {workdir / 'config.json'} --workdir {workdir}"
    assert told.splitlines()[-1] == f"to go on: {go_on}"
    assert run.step == 0 and run.tokenizer.fingerprint == given.tokenizer.fingerprint
    assert values["fresh"] == [] and values["imported"]["format"] == "huggingface"
    saved = config.load(str(workdir / "config.json"))
    assert saved.seed == 7 and saved.dtype == "auto"
    assert saved.model.activation == "gelu" and saved.model.layers == 2
    assert saved.store == str(workdir / "store")
    text = "the old [MASK] walks."
    assert predict.predict(workdir, [text]) == predict.predict(source, [text])


@pytest.mark.slow
def test_training_goes_on_from_an_import(source, tmp_path):
    """The loss at step 0 is the source's on the same rows, and is in the metrics; a restart changes no bit."""
    workdir = tmp_path / "run"
    import_model.import_model(source, workdir, config.load("base"), settings_of(tmp_path))
    settings = config.load(str(workdir / "config.json"))
    assert train.pretrain(settings, workdir) == 0
    again = tmp_path / "again"
    import_model.import_model(source, again, config.load("base"), settings_of(tmp_path))
    first = evaluate_run(again)
    step_0 = lines(workdir)[0]
    assert (step_0["step"], step_0["split"]) == (0, "heldout")
    assert step_0["loss"] == pytest.approx(first["loss"], rel=1e-6) and first["step"] == 0
    half = config.load(str(again / "config.json"), ["phases.main.steps=4"])
    assert train.pretrain(half, again) == 0
    assert load_model.open_run(again).step == 4
    whole = train.pretrain(config.load(str(again / "config.json"), ["phases.main.steps=8"]), again)
    assert whole == 0
    steps = [(line["step"], line["split"]) for line in lines(again)]
    assert steps.count((0, "heldout")) == 1 and len(set(steps)) == len(steps)
    assert lines(workdir)[-1]["loss"] < step_0["loss"]
    facts = json.loads((workdir / "run.json").read_text())
    assert facts["imported"]["source"] == "model" and "store_fingerprint" in facts
    assert step_0["loss"] == pytest.approx(loss_of(source, workdir), rel=1e-6)


def test_what_an_import_fixes_and_what_it_does_not(source, tmp_path):
    workdir = tmp_path / "run"
    import_model.import_model(source, workdir, config.load("base"), settings_of(tmp_path))
    for change in ("model.width=32", "model.activation=gelu_tanh", "objective.pairs=none"):
        with pytest.raises(BadInput, match=change.split("=")[0]):
            train.pretrain(config.load(str(workdir / "config.json"), [change]), workdir)
    other = [f"store={tmp_path / 'other'}", "tokenizer.path=", "tokenizer.size=200"]
    with pytest.raises(BadInput, match="its tokenizer is not that of"):
        train.pretrain(config.load(str(workdir / "config.json"), other), workdir)
    free = ["seed=3", "model.dropout=0.2", "optimizer.learning_rate=1e-2", "phases.main.steps=4"]
    assert train.pretrain(config.load(str(workdir / "config.json"), free), workdir) == 0


def test_a_source_without_heads(tmp_path):
    tensors = outside.make_tensors(parts=("encoder",))
    place = outside.write_huggingface(tmp_path / "model", tensors)
    values = import_model.import_model(place, tmp_path / "run")
    assert values["fresh"] == ["mlm"]  # without a pooler no pairs are asked for
    with pytest.raises(BadInput, match="no masked-LM head"):
        predict.predict(tmp_path / "run", ["the [MASK]"])
    paired = import_model.import_model(place, tmp_path / "paired", short())
    assert paired["fresh"] == ["mlm", "pair", "pooler"]
    whole = outside.write_huggingface(tmp_path / "whole")
    alone = short("objective.pairs=none")
    values = import_model.import_model(whole, tmp_path / "alone", alone)
    assert values["fresh"] == [] and values["imported"]["unused"] == ["pair", "pooler"]


def test_nothing_is_written_for_bad_input(source, tmp_path):
    workdir = tmp_path / "run"
    with pytest.raises(BadInput, match="the tokenizer is that of the source"):
        import_model.import_model(source, workdir, None, ["tokenizer.size=7"])
    with pytest.raises(BadInput, match="config.model.layers=3.* has 2"):
        import_model.import_model(source, workdir, None, ["model.layers=3"])
    tensors = outside.make_tensors()
    tensors["bert.pooler.dense.bias"][3] = np.nan
    damaged = outside.write_huggingface(tmp_path / "damaged", tensors)
    with pytest.raises(BadInput, match=r"bert.pooler.dense.bias \[16\]: 1 values are NaN"):
        import_model.import_model(damaged, workdir)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged"]
    workdir.mkdir()
    (workdir / "a file").write_text("")
    with pytest.raises(BadInput, match="there already"):
        import_model.import_model(source, workdir)


@pytest.mark.parametrize("form", ["huggingface", "google"])
def test_in_and_out_again_is_bitwise(tmp_path, form):
    """Import, then export: the tensors that were given. Export, then open: the parameters of the run."""
    write = {"huggingface": outside.write_huggingface, "google": outside.write_google}[form]
    place = write(tmp_path / "model")
    import_model.import_model(place, tmp_path / "run")
    export.export(tmp_path / "run", tmp_path / "out", form)
    given, back = load_model.read_source(place), load_model.read_source(tmp_path / "out")
    assert given.shapes == back.shapes and len(given.shapes) == 46
    for name in given.shapes:
        np.testing.assert_array_equal(given.load(name), back.load(name), err_msg=name)
    assert_same_bits(
        load_model.open_run(tmp_path / "run").params, load_model.open_model(tmp_path / "out").params
    )
    assert back.tokenizer.fingerprint == given.tokenizer.fingerprint
    assert back.settings == given.settings
