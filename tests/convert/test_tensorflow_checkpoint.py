"""Checkpoints of Google's BERT: bitwise in both directions, and its outputs (damage: test_external_model_refused)."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf
from kits import external_models
from kits.malformed_inputs import open_directory, refused_import
from kits.paths import DATA

from bert_jax.convert import load_model, tensorflow_checkpoint
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer


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


def write(model: load_model.Model, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    tensorflow_checkpoint.write(
        directory, model.config, model.vocabulary, model.tokenizer, model.params
    )
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


def test_missing_heads_are_not_written(synthetic, tmp_path):
    model = open_directory(synthetic, "objective.pair_task=none")
    assert model.info["imported"]["unused"] == ["pair", "pooler"]
    names = tensors(write(model, tmp_path / "again"))
    assert not [name for name in names if "pooler" in name or "seq_relationship" in name]
    again = open_directory(tmp_path / "again")
    assert again.config.objective.pair_task == "none" and again.info["fresh"] == []


def test_models_that_the_original_does_not_support_are_refused(synthetic, tmp_path):
    model = open_directory(synthetic)
    words = tokenizer.train("byte_bpe", ["a few words"], 300, lowercase=True)
    for key, value in (("activation", "gelu"), ("epsilon", 1e-5)):
        config = model.config.copy_and_resolve_references()
        config.model[key] = value
        with pytest.raises(BadInput, match=f"model.{key}={value}"):
            write(model._replace(config=config), tmp_path / "again")
    with pytest.raises(BadInput, match="library"):
        write(model._replace(tokenizer=words), tmp_path / "again")
    assert not any((tmp_path / "again").iterdir())


# --- Outputs of Google's BERT ---------------------------------------------------------------------


def gelu(x):
    return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def original(tensors: dict, heads: int, batch: dict) -> dict:
    """Computes modeling.py and run_pretraining.py of google-research/bert in float64, without dropout."""
    tensors = {name: np.asarray(array, np.float64) for name, array in tensors.items()}

    def norm(x, scope):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        x = (x - mean) / np.sqrt(variance + 1e-12)
        return x * tensors[f"{scope}/gamma"] + tensors[f"{scope}/beta"]

    def dense(x, scope):
        return x @ tensors[f"{scope}/kernel"] + tensors[f"{scope}/bias"]

    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    scope = "bert/embeddings"
    x = tensors[f"{scope}/word_embeddings"][batch["tokens"]]
    x = x + tensors[f"{scope}/token_type_embeddings"][batch["segments"]]
    x = x + tensors[f"{scope}/position_embeddings"][: x.shape[1]]
    x = norm(x, f"{scope}/LayerNorm")
    blocked = -10000.0 * (1 - batch["sequence_ids"])[:, None, None, :]
    for layer in range(2):
        scope = f"bert/encoder/layer_{layer}"
        own = f"{scope}/attention/self"
        query, key, value = (split(dense(x, f"{own}/{n}")) for n in ("query", "key", "value"))
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + blocked
        mixed = (softmax(scores) @ value).swapaxes(1, 2).reshape(x.shape)
        mixed = dense(mixed, f"{scope}/attention/output/dense")
        x = norm(mixed + x, f"{scope}/attention/output/LayerNorm")
        hidden = gelu(dense(x, f"{scope}/intermediate/dense"))
        x = norm(dense(hidden, f"{scope}/output/dense") + x, f"{scope}/output/LayerNorm")
    pooled = np.tanh(dense(x[:, 0], "bert/pooler/dense"))
    pair = pooled @ tensors["cls/seq_relationship/output_weights"].T
    pair += tensors["cls/seq_relationship/output_bias"]
    scope = "cls/predictions"
    y = np.take_along_axis(x, batch["masked_positions"][..., None], axis=1)
    y = norm(gelu(dense(y, f"{scope}/transform/dense")), f"{scope}/transform/LayerNorm")
    logits = y @ tensors["bert/embeddings/word_embeddings"].T + tensors[f"{scope}/output_bias"]
    return {"mlm_logits": logits, "pair_logits": pair}


def test_logits_equal_those_of_googles_bert(directory):
    model = open_directory(directory)
    size = model.vocabulary.size
    draw = np.random.default_rng(0)
    real = np.arange(12) < np.array([12, 7, 3, 1])[:, None]
    batch = {
        "tokens": np.where(real, draw.integers(0, size, real.shape), 0),
        "segments": np.where(real, np.arange(12) > 5, 0).astype(np.int32),
        "positions": np.broadcast_to(np.arange(12), real.shape),
        "sequence_ids": real.astype(np.int32),
        "masked_positions": np.array([[1, 5, 11], [0, 2, 6], [0, 1, 2], [0, 0, 0]]),
        "cls_positions": np.zeros((4, 1), np.int32),
    }
    expected = original(tensors(directory), model.config.model.heads, batch)
    outputs = jax.device_get(jax.jit(model.objective.outputs)(model.params, batch))
    np.testing.assert_allclose(outputs["mlm_logits"][..., :size], expected["mlm_logits"], atol=1e-5)
    np.testing.assert_allclose(outputs["pair_logits"][:, 0], expected["pair_logits"], atol=1e-5)
    assert np.ptp(expected["mlm_logits"]) > 0.1  # else any logits would be as close


# --- Lower-casing and names -----------------------------------------------------------------------


def test_the_vocabulary_decides_about_lower_casing(synthetic, tmp_path):
    """The vocabulary decides. A cased model without capitals, as of Chinese, is cased after export and import."""
    model = open_directory(synthetic)
    assert model.tokenizer.lowercase
    capital = external_models.write_google(
        tmp_path / "cased", pieces=[*external_models.PIECES[:-1], "##Z"]
    )
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
