"""Checkpoints of the original: both directions bitwise, its outputs by its formulas (damages: test_door_refused.py)."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf
from kits import outside
from kits.doors import open_directory, refused_import
from kits.places import DATA

from bert_jax.convert import load_model, tensorflow_checkpoint
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return outside.write_google(tmp_path_factory.mktemp("google") / "model")


@pytest.fixture(params=["made", "given"])
def place(request, made) -> Path:
    """Our own, and one that the original program wrote: 2 layers of width 4, 15 pieces, with Adam's state."""
    given = DATA / "google_checkpoint"
    if request.param == "given" and not given.is_dir():
        pytest.skip("no ../shared/data")
    return made if request.param == "made" else given


def tensors(directory: Path) -> dict[str, np.ndarray]:
    """All that TensorFlow finds in the one checkpoint of a directory."""
    reader = tf.train.load_checkpoint(str(next(directory.glob("*.index")).with_suffix("")))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def write(model: load_model.Trained, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    tensorflow_checkpoint.write(
        directory, model.config, model.vocabulary, model.tokenizer, model.params
    )
    return directory


# --- Both directions ------------------------------------------------------------------------------


def test_there_and_back_is_bitwise(place, tmp_path):
    model, found = open_directory(place), tensors(place)
    again = write(model, tmp_path / "again")
    before = {
        name: a for name, a in found.items() if not tensorflow_checkpoint.STATE.fullmatch(name)
    }
    after = tensors(again)
    assert len(before) == 46 and before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == np.float32 and after[name].shape == array.shape
        assert after[name].tobytes() == array.tobytes(), name
    files = [f"bert_model.ckpt.{last}" for last in ("data-00000-of-00001", "index")]
    files = ["bert_config.json", *files, "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in again.iterdir()) == files
    assert open_directory(again).config.model == model.config.model
    assert (again / "vocab.txt").read_text().split() == (place / "vocab.txt").read_text().split()


def test_heads_that_a_run_lacks_are_not_written(made, tmp_path):
    model = open_directory(made, "objective.pair_task=none")
    assert model.facts["imported"]["unused"] == ["pair", "pooler"]
    names = tensors(write(model, tmp_path / "again"))
    assert not [name for name in names if "pooler" in name or "seq_relationship" in name]
    again = open_directory(tmp_path / "again")
    assert again.config.objective.pair_task == "none" and again.facts["fresh"] == []


def test_what_the_original_cannot_compute_is_not_written(made, tmp_path):
    model = open_directory(made)
    words = tokenizer.train("byte_bpe", ["a few words"], 300, lowercase=True)
    for key, value in (("activation", "gelu"), ("epsilon", 1e-5)):
        config = model.config.copy_and_resolve_references()
        config.model[key] = value
        with pytest.raises(BadInput, match=f"model.{key}={value}"):
            write(model._replace(config=config), tmp_path / "again")
    with pytest.raises(BadInput, match="library"):
        write(model._replace(tokenizer=words), tmp_path / "again")
    assert not any((tmp_path / "again").iterdir())


# --- What the original computes -------------------------------------------------------------------


def gelu(x):
    return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def original(found: dict, heads: int, batch: dict) -> dict:
    """modeling.py and run_pretraining.py of google-research/bert, in float64, without dropout."""
    found = {name: np.asarray(array, np.float64) for name, array in found.items()}

    def norm(x, place):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        x = (x - mean) / np.sqrt(variance + 1e-12)
        return x * found[f"{place}/gamma"] + found[f"{place}/beta"]

    def dense(x, place):
        return x @ found[f"{place}/kernel"] + found[f"{place}/bias"]

    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    place = "bert/embeddings"
    x = found[f"{place}/word_embeddings"][batch["tokens"]]
    x = x + found[f"{place}/token_type_embeddings"][batch["segments"]]
    x = x + found[f"{place}/position_embeddings"][: x.shape[1]]
    x = norm(x, f"{place}/LayerNorm")
    blocked = -10000.0 * (1 - batch["sequence_ids"])[:, None, None, :]
    for layer in range(2):
        place = f"bert/encoder/layer_{layer}"
        own = f"{place}/attention/self"
        query, key, value = (split(dense(x, f"{own}/{n}")) for n in ("query", "key", "value"))
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + blocked
        mixed = (softmax(scores) @ value).swapaxes(1, 2).reshape(x.shape)
        mixed = dense(mixed, f"{place}/attention/output/dense")
        x = norm(mixed + x, f"{place}/attention/output/LayerNorm")
        hidden = gelu(dense(x, f"{place}/intermediate/dense"))
        x = norm(dense(hidden, f"{place}/output/dense") + x, f"{place}/output/LayerNorm")
    pooled = np.tanh(dense(x[:, 0], "bert/pooler/dense"))
    pair = pooled @ found["cls/seq_relationship/output_weights"].T
    pair += found["cls/seq_relationship/output_bias"]
    place = "cls/predictions"
    y = np.take_along_axis(x, batch["masked_positions"][..., None], axis=1)
    y = norm(gelu(dense(y, f"{place}/transform/dense")), f"{place}/transform/LayerNorm")
    logits = y @ found["bert/embeddings/word_embeddings"].T + found[f"{place}/output_bias"]
    return {"mlm_logits": logits, "pair_logits": pair}


def test_logits_are_the_originals(place):
    model = open_directory(place)
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
    expected = original(tensors(place), model.config.model.heads, batch)
    found = jax.device_get(jax.jit(model.objective.outputs)(model.params, batch))
    np.testing.assert_allclose(found["mlm_logits"][..., :size], expected["mlm_logits"], atol=1e-5)
    np.testing.assert_allclose(found["pair_logits"][:, 0], expected["pair_logits"], atol=1e-5)
    assert np.ptp(expected["mlm_logits"]) > 0.1  # or anything would be as near


# --- Lower-casing and names -----------------------------------------------------------------------


def test_whether_words_are_lower_cased(made, tmp_path):
    """The vocabulary tells; a cased model without capitals, as one of Chinese may be, comes back cased."""
    model = open_directory(made)
    assert model.tokenizer.lowercase
    capital = outside.write_google(tmp_path / "cased", pieces=[*outside.PIECES[:-1], "##Z"])
    assert not open_directory(capital).tokenizer.lowercase
    pieces = model.tokenizer.pieces
    cased = type(model.tokenizer)(pieces, lowercase=False)
    again = open_directory(write(model._replace(tokenizer=cased), tmp_path / "again"))
    assert again.tokenizer.fingerprint == cased.fingerprint


def test_a_config_json_of_hugging_face_beside_the_checkpoint(made, tmp_path):
    """Directories of the hub have both; without safetensors the checkpoint is meant."""
    place = outside.copy(made, tmp_path / "both")
    outside.write_config(place / "config.json", outside.huggingface_config())
    assert open_directory(place).facts["imported"]["format"] == "google"


def test_of_several_checkpoints_one_is_named(tmp_path):
    for seed in (0, 1):
        arrays = outside.make_tensors("google", seed=seed)
        place = outside.write_google(tmp_path / "model", arrays, name=f"model.ckpt-{seed}")
    assert "model.ckpt-0, model.ckpt-1" in refused_import(place)
    for seed in (0, 1):
        (place / "checkpoint").write_text(f'model_checkpoint_path: "/else/model.ckpt-{seed}"\n')
        found = load_model.read_source(place).load("cls/predictions/output_bias")
        expected = outside.make_tensors("google", seed=seed)["cls/predictions/output_bias"]
        assert (found == expected).all()
    (place / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    assert refused_import(place).startswith(f"{place / 'checkpoint'}: ")


def test_without_tensorflow_it_says_so(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert "TensorFlow" in refused_import(made)
