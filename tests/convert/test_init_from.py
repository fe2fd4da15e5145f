"""`init_from`: a new run starts with another model's parameters, bit for bit, as far as it has them."""

import json
import re
import shutil
import signal

import numpy as np
import pytest
from kits import external_models, small
from kits.malformed_inputs import refused
from kits.runs import assert_same_bits, lines, load, make_run, params, pretraining, signal_at
from kits.small import mesh_keys

from bert_jax import loop, train
from bert_jax.checkpoints import reader
from bert_jax.commands import average, export
from bert_jax.convert import init_from, open_model
from bert_jax.convert.names import by_path
from bert_jax.data.preparation import prepare
from bert_jax.errors import BadInput
from bert_jax.parallel.cluster import Cluster
from bert_jax.runs.workdir import Workdir
from bert_jax.tasks import feed
from bert_jax.tokenizers import tokenizer

# A learning rate of 0 keeps the parameters that the run starts with.
KEYS = {"seed": 1, "phases.main.steps": 5, "evaluate.every": 5, "checkpoint.every": 5}
START = KEYS | {"optimizer.learning_rate": 0.0}
SHARDED = dict(item.split("=") for item in mesh_keys((2, 2, 2)))


def begin(settings, workdir, **changes):
    """Trains a run of five steps; returns its parameters."""
    assert train.pretrain(load(settings, **changes), workdir) == 0
    return params(workdir)


@pytest.fixture(scope="module")
def random(finished, tmp_path_factory):
    """A run that starts from random weights."""
    workdir = tmp_path_factory.mktemp("random") / "run"
    begin(finished[0], workdir, **START)
    return workdir


def assert_started_from(workdir, source, random) -> None:
    """Compares with the parameters of the source, and with a run without init_from."""
    assert_same_bits(params(workdir), source)
    assert lines(workdir)[-1]["split"] == "heldout"
    assert lines(workdir)[-1]["loss"] != lines(random)[-1]["loss"]
    info = json.loads((workdir / "run.json").read_text())
    assert info["fresh"] == []
    assert info["imported"]["parameters"] == info["parameters"]


@pytest.mark.slow
def test_a_run_starts_from_the_parameters_of_another_run(finished, random, tmp_path, capsys):
    settings, source = finished
    begin(settings, tmp_path / "run", init_from=source, **START)
    assert_started_from(tmp_path / "run", params(source), random)
    log = capsys.readouterr().out
    info = json.loads((tmp_path / "run/run.json").read_text())
    number = f"{info['parameters']:,}"
    (line,) = (line for line in log.splitlines() if line.startswith("init_from"))
    assert f"{number} parameters" in line and "(mlm, network, pair); fresh: nothing" in line
    expected = {"source": source.name, "step": 20, "positions": 32}
    assert info["imported"] == info["imported"] | expected


@pytest.mark.full
@pytest.mark.parametrize("form", ["huggingface", pytest.param("google", marks=pytest.mark.full)])
def test_a_run_starts_from_an_export(finished, random, tmp_path, form):
    """The export has no padding, and the parameters of the new run are sharded."""
    settings, source = finished
    export.export(Workdir(source), tmp_path / "out", form)
    begin(settings, tmp_path / "run", init_from=tmp_path / "out", **START, **SHARDED)
    assert_started_from(tmp_path / "run", params(source), random)


@pytest.mark.slow
def test_a_part_that_the_source_lacks_is_fresh(finished, random, tmp_path):
    settings, workdir = finished
    words = tokenizer.load(workdir / "tokenizer")
    keys = "task.pair_task=none", "model.layers=1"
    *_, source = make_run(tmp_path / "source", *keys, words=words)
    started = begin(settings, tmp_path / "run", init_from=tmp_path / "source", **START)
    fresh = params(random)
    assert_same_bits(started["network"], source["network"] | {"pooler": fresh["network"]["pooler"]})
    assert_same_bits(started["mlm"], source["mlm"])
    assert_same_bits(started["pair"], fresh["pair"])
    info = json.loads((tmp_path / "run/run.json").read_text())
    assert info["fresh"] == ["pair", "pooler"]


@pytest.mark.slow
def test_a_resumed_run_knows_the_source_by_its_content(finished, random, tmp_path):
    """Another path of the same model is no change, and neither is none; another model is refused."""
    settings, source = finished
    begin(settings, tmp_path / "run", **START | {"init_from": source})
    shutil.copytree(source, tmp_path / "copy")
    start = train.read_start(Workdir(tmp_path / "run"), 5, "run")
    for place in (source, tmp_path / "copy", ""):
        config = load(settings, **START | {"init_from": place, "phases.main.steps": 9})
        train.check(config, Workdir(tmp_path / "run"), start)
        init_from.check_same(config, "run", start.config, start.info, Cluster())
    for steps in (5, 9):  # also of a run that is done
        changes = START | {"init_from": random, "phases.main.steps": steps}
        assert "config.init_from=" in refused(*pretraining(settings, tmp_path / "run", **changes))
    # A moved run, whose paths are replaced by hand, is no altered one.
    for name in ("config.json", "run.json"):
        path = tmp_path / "run" / name
        path.write_text(path.read_text().replace(str(source), str(tmp_path / "copy")))
    assert open_model.open_model(tmp_path / "run").step == 5


def test_heads_of_another_kind_are_not_kept(tmp_path):
    """A layer with another name or type, another number of classes, and an output matrix that is not tied."""
    tensors = external_models.make_tensors()
    plain = external_models.write_huggingface(tmp_path / "plain", tensors)
    decoder = {"cls.predictions.decoder.weight": np.ones((3, 16), np.float32)}
    pair = {"cls.seq_relationship.weight": np.ones((3, 16), np.float32)}
    counter = {"loss.steps": np.arange(3), "score.dense.weight": np.ones((2, 16), np.float32)}
    counter["head.weight"] = np.ones((2, 16), np.float32)
    foreign = tensors | decoder | pair | counter
    external_models.write_huggingface(tmp_path / "foreign", foreign, architectures=["Mine"])
    config = open_model.open_model(plain, ["dtype=float32", "batches=saved"]).config
    bodies = []
    for name in ("plain", "foreign"):
        config = config.copy_and_resolve_references()
        config.init_from = str(tmp_path / name)
        bodies.append(init_from.read(config, Cluster()).arrays)
    with_heads, body = bodies
    heads = {path.partition("/")[0] for path in with_heads.keys() - body.keys()}
    assert heads == {"mlm", "pair"}
    assert_same_bits({path: with_heads[path] for path in body}, body)


@pytest.mark.full
def test_an_export_goes_on_with_other_text_and_its_own_tokenizer(tmp_path):
    """Byte-level pieces; the first held-out loss on the first text is the last one of the run."""
    small.write_corpus(tmp_path / "first.txt", documents=60)
    first = (tmp_path / "first.txt").read_text()
    (tmp_path / "heldout.txt").write_text(f"{first[:3000]}\n\nIt was closed.\nIt rained.\n")
    other = [f"The harbour of town {n} was closed.\nShips waited for {n} days." for n in range(80)]
    (tmp_path / "other.txt").write_text("\n\n".join(other))
    settings = small.SMALL | {"tokenizer.kind": "byte_bpe", "tokenizer.size": 330}
    settings |= {"model.layers": 1, "corpus.heldout_source": tmp_path / "heldout.txt"}
    texts = {name: {"corpus.source": tmp_path / f"{name}.txt"} for name in ("first", "other")}
    stores = {name: {"store": tmp_path / f"{name}_store"} for name in texts}
    begin(settings, tmp_path / "run", **texts["first"] | stores["first"])
    export.export(Workdir(tmp_path / "run"), tmp_path / "export", "huggingface")
    start = START | {"init_from": tmp_path / "export"}
    start |= {"tokenizer.path": tmp_path / "export/tokenizer.json"}
    begin(settings, tmp_path / "next", **start | texts["other"] | stores["other"])
    before, after = (lines(tmp_path / name)[-1]["loss"] for name in ("run", "next"))
    assert after == pytest.approx(before, rel=1e-6)


# Dropout and rates are functions of the step, which begins anew.
PLAIN = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "optimizer.clip": 0.5}
PLAIN |= {"schedule.name": "constant", "schedule.warmup": 0, "optimizer.bias_correction": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["adam", *(pytest.param(n, marks=pytest.mark.full) for n in ("adafactor", "lamb", "muon"))],
)
def test_moments_are_kept_from_step_0_on(finished, tmp_path, monkeypatch, name):
    """Twenty steps of a new run are those of one run after as many, on the same batches."""
    keys = PLAIN | {"optimizer.name": name, "log.every": 1, "evaluate.every": 0}
    settings = finished[0] | {"checkpoint.keep": 9}
    for key in small.LOST.get(f"optimizer.name={name}", ()):
        for values in (keys, settings):
            values.pop(key, None)
    begin(settings, tmp_path / "one", **keys | {"phases.main.steps": 40})
    train_batches = feed.StoreFeed.train
    monkeypatch.setattr(
        feed.StoreFeed,
        "train",
        lambda self, phase, first, last, positions: train_batches(
            self, phase._replace(stop=40), first + 20, last + 20, positions
        ),
    )
    losses = {}
    for kept in (True, False):
        workdir = tmp_path / str(kept)
        start = {"init_from": f"{tmp_path / 'one'}@20", "init_moments": kept}
        begin(settings, workdir, **keys | start)
        losses[kept] = [line["loss"] for line in lines(workdir) if line["split"] == "train"]
    expected = [line["loss"] for line in lines(tmp_path / "one") if line["split"] == "train"]
    np.testing.assert_allclose(losses[True], expected[20:], rtol=1e-6)
    assert np.abs(np.subtract(losses[False], expected[20:])).max() > 1e-3
    opt_state = reader.read((tmp_path / "True/checkpoints/20").absolute(), "opt_state")
    counts = [leaf for path, leaf in by_path(opt_state).items() if path.endswith("/count")]
    assert 40 in counts


@pytest.mark.parametrize(
    "changes, named",
    [
        (
            {"optimizer.name": "external.lion"},
            "optimizer.name='external.lion': .*'adam'",
        ),
        ({"model.layers": 2}, "model.layers=2: .*config.init_from="),
        ({"init_from": "export"}, "init_moments=True: .*export"),
        ({"init_from": "mean"}, "init_moments=True: .*mean.*/20 "),
        ({"init_from": ""}, "init_moments=True: needs init_from"),
    ],
)
def test_moments_of_another_kind_are_refused(finished, tmp_path, monkeypatch, changes, named):
    monkeypatch.chdir(tmp_path)
    export.export(Workdir(finished[1]), tmp_path / "export", "huggingface")
    if changes.get("init_from") == "mean":
        average.average([str(finished[1])] * 2, tmp_path / "mean")
    keys = KEYS | {"init_from": finished[1], "init_moments": True} | changes
    assert re.search(named, refused(*pretraining(finished[0], tmp_path / "run", **keys)))
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_rotary_positions_may_have_another_base(finished, tmp_path, capsys):
    """Also longer rows: no array has a row for each position."""
    words = tokenizer.load(finished[1] / "tokenizer")
    modern = [*small.MODERN, "task.name=packed_documents"]
    make_run(tmp_path / "source", *modern, words=words)
    settings = finished[0] | dict(key.split("=") for key in modern)
    del settings["model.attention_dropout"]
    longer = {"model.layers": 4, "model.max_length": 64, "model.rotary_base": 10_000.0}
    longer |= {"phases.main.rotary_base": 20_000.0}
    begin(settings, tmp_path / "run", init_from=tmp_path / "source", **START | longer)
    assert_same_bits(params(tmp_path / "run"), params(tmp_path / "source"))
    printed = capsys.readouterr().out
    assert "init_from: config.model.rotary_base=20000.0 instead of 160000.0" in printed


@pytest.mark.full
def test_a_resumed_run_does_not_need_the_source(finished, tmp_path):
    settings, source = finished[0], tmp_path / "source"
    shutil.copytree(finished[1], source)
    keys = KEYS | {"init_from": source, "phases.main.steps": 10}
    with pytest.MonkeyPatch.context() as patch:
        signal_at(patch, 5, signal.SIGTERM)
        assert train.pretrain(load(settings, **keys), tmp_path / "run") == 75
    before = json.loads((tmp_path / "run/run.json").read_text())
    source.rename(tmp_path / "gone")
    begin(settings, tmp_path / "run", **keys)
    info = json.loads((tmp_path / "run/run.json").read_text())
    assert all(info[key] == before[key] for key in ("imported", "fresh"))


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"init_from": "missing"}, "missing"),
        ({"model.feed_forward": 64}, "model.feed_forward=64 .*: config.init_from=.* has 128"),
        ({"model.max_length": 64}, "model.max_length=64 .*: config.init_from=.* has 32"),
        ({"store": "new"}, "config.tokenizer.path='': .* config.init_from"),
        ({"store": "other", "tokenizer.lowercase": False}, "config.store=.*other.*init_from"),
    ],
)
def test_another_model_or_tokenizer_is_refused(finished, tmp_path, monkeypatch, changes, named):
    """Nothing is written, and no store is prepared."""
    settings, source = finished
    monkeypatch.chdir(tmp_path)
    external_models.write_vocabulary(tmp_path, external_models.PIECES)
    if changes.get("store") == "other":
        prepare.prepare(load(settings, **changes))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadInput, match=named):
        train.pretrain(load(settings, **{"init_from": source, **KEYS} | changes), tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.full
def test_run_json_names_the_network_of_the_parameters_alone(finished, tmp_path):
    """A start that was killed before its first checkpoint is not resumed, so its network is forgotten."""
    settings, source = finished
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            train.pretrain(load(settings, **KEYS | {"init_from": source}), tmp_path / "run")
    info = tmp_path / "run/run.json"
    assert json.loads(info.read_text())["imported"]
    begin(settings, tmp_path / "run", **START)
    assert "imported" not in json.loads(info.read_text())


def killed(*_):
    raise KeyboardInterrupt
