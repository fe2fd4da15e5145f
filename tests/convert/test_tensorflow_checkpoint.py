"""Checkpoints of Google's BERT: bitwise in both directions, and as transformers converts them (damage:
test_external_model)."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from kits import external_models
from kits.malformed_inputs import open_directory, refused_import
from kits.paths import DATA
from kits.runs import assert_same_bits

from bert_jax.commands import export
from bert_jax.convert import tensorflow_checkpoint
from bert_jax.errors import BadInput
from bert_jax.runs import open_run
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.training import Training


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    return external_models.write_google(tmp_path_factory.mktemp("google") / "model")


@pytest.fixture(params=["synthetic", "original"])
def directory(request, synthetic) -> Path:
    """A synthetic checkpoint, and one that Google's BERT wrote: 2 layers of width 4, 15 pieces, with Adam's state."""
    original = DATA / "google_checkpoint"
    if request.param == "original" and not original.is_dir():
        pytest.skip("no ../shared/data")
    return synthetic if request.param == "synthetic" else original


def tensors(directory: Path) -> dict[str, np.ndarray]:
    """Returns all variables of the one checkpoint in a directory, as TensorFlow reads them."""
    reader = tf.train.load_checkpoint(str(next(directory.glob("*.index")).with_suffix("")))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def write(model: open_run.OpenModel, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    parts = model.config, model.vocabulary, model.tokenizer, model.params
    tensorflow_checkpoint.write(directory, *parts)
    return directory


# --- Both directions ------------------------------------------------------------------------------


def test_read_and_write_is_bitwise(directory, tmp_path):
    model, variables = open_directory(directory), tensors(directory)
    again = write(model, tmp_path / "again")
    is_state = tensorflow_checkpoint.STATE.fullmatch
    before = {name: array for name, array in variables.items() if not is_state(name)}
    after = tensors(again)
    assert len(before) == 46 and before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == np.float32 and after[name].shape == array.shape
        assert after[name].tobytes() == array.tobytes(), name
    files = [f"bert_model.ckpt.{last}" for last in ("data-00000-of-00001", "index")]
    files = ["bert_config.json", *files, "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in again.iterdir()) == files
    assert open_directory(again).config.model == model.config.model
    one, other = ((place / "vocab.txt").read_text().split() for place in (again, directory))
    assert one == other


def test_models_that_the_original_does_not_support_are_refused(synthetic, tmp_path):
    model = open_directory(synthetic)
    words = tokenizer.train("byte_bpe", ["a few words"], 300, lowercase=True)
    for key, value in (("activation", "gelu"), ("epsilon", 1e-5)):
        config = model.config.copy_and_resolve_references()
        config.model[key] = value
        with pytest.raises(BadInput, match=f"model.{key}={value}"):
            export.check_run(model._replace(config=config), "run", "google")
    accents = tokenizer.train("wordpiece", ["a"], 300, True, False, Training(keep_accents=True))
    for refused, named in ((words, "library"), (accents, "keep_accents")):
        with pytest.raises(BadInput, match=named):
            write(model._replace(tokenizer=refused), tmp_path / "again")
    assert not any((tmp_path / "again").iterdir())


# --- The parameters, as transformers converts them ------------------------------------------------

# Changes of names by load_tf_weights_in_bert of transformers 4 (models/bert/modeling_bert.py).
RENAMES = {"layer_": "layer.", "/": ".", "kernel": "weight", "gamma": "weight", "beta": "bias"}
RENAMES |= {"output_weights": "weight", "output_bias": "bias", "_embeddings": "_embeddings.weight"}


def converted(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Returns the name and the array of a variable in transformers."""
    array = array.T if name.endswith("kernel") else array
    for theirs, ours in RENAMES.items():
        name = name.replace(theirs, ours)
    return name, np.ascontiguousarray(array)


def test_parameters_equal_those_of_a_conversion_by_transformers(directory, tmp_path):
    """So outputs equal those of transformers, see test_golden.py. The tables of names in names.py are not used."""
    is_state = tensorflow_checkpoint.STATE.fullmatch
    variables = {name: array for name, array in tensors(directory).items() if not is_state(name)}
    renamed = dict(converted(*item) for item in variables.items())
    settings = json.loads((directory / "bert_config.json").read_text()) | {"hidden_act": "gelu_new"}
    pieces = (directory / "vocab.txt").read_text().split()
    other = external_models.write_huggingface(tmp_path / "other", renamed, pieces, **settings)
    one, other = open_directory(directory), open_directory(other)
    assert_same_bits(one.params, other.params)
    assert one.config.model == other.config.model


# --- Lower-casing and names -----------------------------------------------------------------------


def test_the_vocabulary_decides_about_lower_casing(synthetic, tmp_path):
    """The vocabulary decides. A cased model without capitals, as of Chinese, is cased after export and import."""
    model = open_directory(synthetic)
    assert model.tokenizer.lowercase
    pieces = [*external_models.PIECES[:-1], "##Z"]
    capital = external_models.write_google(tmp_path / "cased", pieces=pieces)
    assert not open_directory(capital).tokenizer.lowercase
    pieces = model.tokenizer.pieces
    cased = type(model.tokenizer)(pieces, lowercase=False)
    again = open_directory(write(model._replace(tokenizer=cased), tmp_path / "again"))
    assert again.tokenizer.fingerprint == cased.fingerprint


def test_a_config_json_of_hugging_face_next_to_the_checkpoint_is_ignored(synthetic, tmp_path):
    """Directories of the hub may have both; without safetensors the checkpoint is read."""
    directory = external_models.copy(synthetic, tmp_path / "both")
    external_models.write_config(directory / "config.json", external_models.huggingface_config())
    assert open_directory(directory).info["imported"]["format"] == "google"


def test_several_checkpoints_are_refused(tmp_path):
    for name in ("model.ckpt-0", "model.ckpt-1"):
        directory = external_models.write_google(tmp_path / "model", name=name)
    assert "model.ckpt-0, model.ckpt-1" in refused_import(directory)


def test_missing_tensorflow_is_reported(synthetic, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert "TensorFlow" in refused_import(synthetic)
