"""`evaluate.metric`: a function of one's own measures the model at each evaluation."""

import os
import sys

import pytest
from kits import processes, runs
from kits.runs import lines, load, pretraining
from kits.small import SMALL, write_corpus

from bert_jax import cli
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.inference import fill_mask
from bert_jax.train import pretrain

MODULE = "own_metric_of_a_test"
CODE = '''
from bert_jax.inference import fill_mask

CALLS = []

def probe(model):
    """Batches of 32 rows, which would divide over the devices, and of one, which would not."""
    CALLS.append(model.step)
    [[[best]]] = fill_mask.candidates(model, ["the cat saw [MASK]"], 1, ["probe"])
    row = [model.frame.wrap(model.tokenizer.encode_with_masks("the cat saw [MASK]"))]
    [[[nats], *_]] = fill_mask.measure(model, [[model.vocabulary.unk]], [row])
    return {"probe_probability": best["probability"], "probe_nats": nats}

def nothing(model):
    pass

def text(model):
    return {"probe": "a text"}

def same(model):
    return {"loss": 1.0}

def fails(model):
    raise RuntimeError("no such probe")

number = 3
'''


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield
    sys.modules.pop(MODULE, None)


def settings_of(directory, name: str) -> dict:
    write_corpus(directory / "corpus.txt", documents=60)
    paths = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    keys = {"model.layers": 1, "evaluate.metric": f"{MODULE}.{name}"}
    return SMALL | keys | {key: str(path) for key, path in paths.items()}


@pytest.mark.slow
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.full), 8])
def test_a_function_measures_the_model_of_each_evaluation(tmp_path, code, devices):
    """With the parameters of the step: its numbers are those that it gives for the checkpoint of that step."""
    settings = settings_of(tmp_path, "probe")
    with pytest.MonkeyPatch.context() as patch:
        runs.use_devices(patch, devices)
        assert pretrain(load(settings, **{"mesh.fsdp": devices}), tmp_path / "run") == 0
    assert sys.modules[MODULE].CALLS == [10, 20]
    model = open_model.open_model(tmp_path / "run")
    [[[expected]]] = fill_mask.candidates(model, ["the cat saw [MASK]"], 1, ["here"])
    found = {line["step"]: line for line in lines(tmp_path / "run") if line["split"] == "heldout"}
    assert found[20]["probe_probability"] == pytest.approx(expected["probability"], rel=1e-4)
    assert found[20]["probe_nats"] != found[10]["probe_nats"] > 0
    assert not any(
        "probe_nats" in line for line in lines(tmp_path / "run") if line["split"] == "train"
    )


@pytest.mark.full
def test_process_0_measures_the_parameters_of_all(tmp_path, code):
    """They are divided over the devices of two processes."""
    settings = settings_of(tmp_path, "probe")
    assert pretrain(load(settings), tmp_path / "one") == 0
    arguments = pretraining(settings, tmp_path / "two", **{"mesh.fsdp": 4})
    path = f"{tmp_path / 'code'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ended = processes.run(arguments, tmp_path / "logs", 2, 2, PYTHONPATH=path)
    assert [each.code for each in ended] == [0, 0], ended
    one, two = (
        [line["probe_nats"] for line in lines(tmp_path / run) if line["split"] == "heldout"]
        for run in ("one", "two")
    )
    assert len(two) == 2 and two == pytest.approx(one, rel=1e-3)


@pytest.mark.full
def test_a_resumed_run_may_have_another(tmp_path, code):
    """What it gives must be numbers by names of its own, and an error names the key. The checkpoint is saved before."""
    settings = settings_of(tmp_path, "nothing")
    reasons = {"nothing": "items", "text": "could not", "same": "loss", "fails": "no such probe"}
    for name, reason in reasons.items():
        settings["evaluate.metric"] = f"{MODULE}.{name}"
        with pytest.raises(BadInput, match=f"config.evaluate.metric='{MODULE}.{name}': .*{reason}"):
            pretrain(load(settings), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "10").is_dir()
    assert pretrain(load(settings | {"evaluate.metric": f"{MODULE}.probe"}), tmp_path / "run") == 0
    assert sys.modules[MODULE].CALLS == [10, 20]


@pytest.mark.parametrize("name", ["missing", "number"])
def test_a_bad_name_is_refused_before_anything_is_written(tmp_path, code, capsys, name):
    settings = settings_of(tmp_path, name)
    assert cli.main(pretraining(settings, tmp_path / "run")) == 2
    assert f"config.evaluate.metric='{MODULE}.{name}': " in capsys.readouterr().err
    assert not (tmp_path / "run").exists() and not (tmp_path / "store").exists()
