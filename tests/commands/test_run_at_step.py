"""RUN@STEP names a checkpoint of a run wherever a model is read."""

import json

import numpy as np
import pytest
from kits.malformed_inputs import refused

from bert_jax import config as configs
from bert_jax.checkpoints import reader
from bert_jax.cli import main
from bert_jax.convert import init_from, open_model
from bert_jax.convert.names import by_path
from bert_jax.parallel.cluster import Cluster
from bert_jax.runs import workdir


@pytest.fixture(scope="module")
def run(finished):
    assert reader.steps(finished[1] / "checkpoints") == [20, 10]
    return finished[1]


def test_a_model_has_the_parameters_of_the_step(run):
    """Also where the config would take the mean of several."""
    expected = reader.read((run / "checkpoints/10").absolute(), "params")
    model = open_model.open_model(f"{run}@10", ["checkpoint.average=2"])
    assert model.step == 10
    for path, array in by_path(model.params).items():
        np.testing.assert_array_equal(array, by_path(expected)[path])
    config = configs.load(str(run))
    config.init_from = f"{run}@10"
    assert init_from.read(config, Cluster()).source["step"] == 10


@pytest.mark.slow
def test_commands_read_the_checkpoint_of_the_step(run, tmp_path):
    exported = tmp_path / "exported"
    assert main(["export", "--model", f"{run}@10", "--output", str(exported)]) == 0
    texts = tmp_path / "texts.txt"
    texts.write_text("not the class that returns a value\n")
    file = tmp_path / "values.json"

    def values(*command):
        assert main([*map(str, command), "--json", str(file)]) == 0
        return json.loads(file.read_text())

    scores = []
    for model in (f"{run}@10", exported, run):
        (line,) = values("score", "--model", model, "--input", texts)["sentences"]
        scores.append(line["log_probability"])
    assert scores[0] == pytest.approx(scores[1], abs=1e-4) and abs(scores[0] - scores[2]) > 1e-3
    assert values("evaluate", "--model", f"{run}@10")["step"] == 10


def test_steps_that_were_not_kept_are_refused(run, tmp_path):
    text = refused("predict", "--model", f"{run}@15", "a [MASK]")
    assert f"{run}@15: " in text and "20, 10" in text
    (tmp_path / "a@5").mkdir()  # a directory of this name is itself
    assert workdir.split_step(tmp_path / "a@5") == (str(tmp_path / "a@5"), None)
    assert workdir.split_step("gs://bucket/a@5") == ("gs://bucket/a", 5)
