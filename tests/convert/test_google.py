"""The original program's checkpoints: both directions bitwise, its outputs by its formulas, damages refused."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf
from kits import outside
from kits.places import DATA

from bert_jax.commands import load_model
from bert_jax.convert import google
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer

# Written by the original program: 2 layers of width 4, 15 pieces, with Adam's state.
GIVEN = DATA / "google_checkpoint"
wants_given = pytest.mark.skipif(not GIVEN.is_dir(), reason="shared/data is not there")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return outside.write_google(tmp_path_factory.mktemp("google") / "model")


def tensors(directory: Path) -> dict[str, np.ndarray]:
    """All that TensorFlow finds in the one checkpoint of a directory."""
    reader = tf.train.load_checkpoint(str(next(directory.glob("*.index")).with_suffix("")))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def open_directory(directory: Path, *overrides) -> load_model.Trained:
    overrides = ("dtype=float32", *overrides)
    return load_model.open_source(load_model.read_source(directory), None, overrides)


def write(model: load_model.Trained, directory: Path) -> Path:
    directory.mkdir()
    google.write(directory, model.config, model.vocabulary, model.tokenizer, model.params)
    return directory


def refused(directory: Path) -> str:
    with pytest.raises(BadInput) as caught:
        open_directory(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- Both directions ------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["made", pytest.param("given", marks=wants_given)])
def test_there_and_back_is_bitwise(source, made, tmp_path):
    place = made if source == "made" else GIVEN
    model = open_directory(place)
    again = write(model, tmp_path / "again")
    before = {name: a for name, a in tensors(place).items() if not google.STATE.fullmatch(name)}
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


def test_a_config_json_of_hugging_face_beside_the_checkpoint(made, tmp_path):
    """Directories of the hub have both; without safetensors it is the checkpoint that is meant."""
    place = outside.copy(made, tmp_path / "both")
    outside.write_config(place / "config.json", outside.huggingface_config())
    assert open_directory(place).facts["imported"]["format"] == "google"


@wants_given
def test_the_optimizers_state_is_left_out_and_counted():
    model = open_directory(GIVEN)
    assert model.facts["imported"]["left_out"] == 2 * 46 + 1
    assert (model.vocabulary.size, model.config.model.width, model.config.model.heads) == (15, 4, 4)


def test_heads_that_a_run_lacks_are_not_written(made, tmp_path):
    model = open_directory(made, "objective.pairs=none")
    assert model.facts["imported"]["unused"] == ["pair", "pooler"]
    names = tensors(write(model, tmp_path / "again"))
    assert not [name for name in names if "pooler" in name or "seq_relationship" in name]
    assert "cls/predictions/output_bias" in names
    again = open_directory(tmp_path / "again")
    assert again.config.objective.pairs == "none" and again.facts["fresh"] == []


@pytest.mark.parametrize(
    ("parts", "fresh"),
    [
        (("encoder",), ["mlm"]),
        (("encoder", "pooler"), ["mlm", "pair"]),
        (("encoder", "pooler", "pair"), ["mlm"]),
        (("encoder", "mlm"), []),
    ],
)
def test_heads_may_be_absent(parts, fresh, tmp_path):
    source = outside.write_google(tmp_path / "model", outside.make_tensors("google", parts))
    model = open_directory(source)
    assert model.facts["fresh"] == fresh
    assert model.config.objective.pairs == ("nsp" if "pooler" in parts else "none")


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


@pytest.mark.parametrize("source", ["made", pytest.param("given", marks=wants_given)])
def test_logits_are_the_originals(source, made):
    place = made if source == "made" else GIVEN
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
    found = jax.device_get(model.objective.outputs(model.params, batch))
    np.testing.assert_allclose(found["mlm_logits"][..., :size], expected["mlm_logits"], atol=1e-5)
    np.testing.assert_allclose(found["pair_logits"][:, 0], expected["pair_logits"], atol=1e-5)
    assert np.ptp(expected["mlm_logits"]) > 0.1  # or anything would be as near


# --- What cannot be written -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("activation", "gelu", "config.model.activation=gelu"),
        ("epsilon", 1e-5, "config.model.epsilon=1e-05"),
    ],
)
def test_models_the_original_cannot_compute_are_not_written(key, value, named, made, tmp_path):
    with pytest.raises(BadInput, match=f"config.model.{key}=.*has"):
        open_directory(made, f"model.{key}={value}")
    model = open_directory(made)
    with model.config.unlocked():
        model.config.model[key] = value
    with pytest.raises(BadInput, match=named):
        write(model, tmp_path / "again")
    assert not any((tmp_path / "again").iterdir())


def test_other_tokenizers_are_not_written(made, tmp_path):
    words = tokenizer.train("byte_bpe", ["a few words"], 300, lowercase=True)
    with pytest.raises(BadInput, match="WordPiece alone"):
        write(open_directory(made)._replace(tokenizer=words), tmp_path / "again")
    assert not any((tmp_path / "again").iterdir())


# --- Lower-casing ---------------------------------------------------------------------------------


def test_the_vocabulary_tells_whether_words_are_lower_cased(made, tmp_path):
    assert open_directory(made).tokenizer.model.lowercase
    capital = [*outside.PIECES[:-1], "##Z"]
    cased = outside.write_google(tmp_path / "cased", pieces=capital)
    assert not open_directory(cased).tokenizer.model.lowercase


def test_a_cased_model_without_capitals_comes_back_cased(made, tmp_path):
    """As one of Chinese may be."""
    model = open_directory(made)
    pieces = model.tokenizer.pieces
    cased = tokenizer.Tokenizer(type(model.tokenizer.model)(pieces, lowercase=False))
    again = open_directory(write(model._replace(tokenizer=cased), tmp_path / "again"))
    assert again.tokenizer.fingerprint == cased.fingerprint


# --- The door -------------------------------------------------------------------------------------


def test_the_checkpoint_may_have_another_name(made, tmp_path):
    place = outside.write_google(tmp_path / "model", name="model.ckpt-1000")
    assert open_directory(place).tokenizer.size == len(outside.PIECES)


def test_of_several_the_file_checkpoint_names_one(tmp_path):
    place = outside.write_google(tmp_path / "model", name="model.ckpt-1000")
    newer = outside.make_tensors("google", seed=1)
    outside.write_google(place, newer, name="model.ckpt-2000")
    assert "model.ckpt-1000, model.ckpt-2000" in refused(place)
    for number, seed in ((1000, 0), (2000, 1)):
        text = f'model_checkpoint_path: "/elsewhere/model.ckpt-{number}"\nall_model_checkpoint_paths: "x"\n'
        (place / "checkpoint").write_text(text)
        found = load_model.read_source(place).load("cls/predictions/output_bias")
        expected = outside.make_tensors("google", seed=seed)["cls/predictions/output_bias"]
        assert (found == expected).all()
    (place / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3000"\n')
    assert "checkpoint: names none of model.ckpt-1000" in refused(place)


DATA, INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"


def cut(path: Path, bytes_left: int) -> None:
    path.write_bytes(path.read_bytes()[:bytes_left])


def add(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


FILES = {
    "no data": (lambda d: (d / DATA).unlink(), r"ckpt\.data-.*: 0 bytes in 0 files, .* \d+ bytes"),
    "data cut": (lambda d: cut(d / DATA, 1000), r"ckpt\.data-.*: 1000 bytes in 1 file"),
    "data longer": (lambda d: add(d / DATA, b"abcd"), r"ckpt\.data-.*: \d+ bytes in 1 file"),
    "data empty": (lambda d: cut(d / DATA, 0), r"ckpt\.data-.*: 0 bytes in 1 file"),
    "a bit of the data": (lambda d: flip(d / DATA, 500), r"ckpt: bert/\S+ .*[Cc]hecksum"),
    "index cut": (lambda d: cut(d / INDEX, 1000), r"ckpt\.index: not readable"),
    "index empty": (lambda d: cut(d / INDEX, 0), r"ckpt\.index: not readable"),
    "a bit of the index": (lambda d: flip(d / INDEX, 500), r"ckpt\.index: not readable"),
    "no index": (lambda d: (d / INDEX).unlink(), r"no bert_model\.ckpt\.index"),
    "no config": (lambda d: (d / "bert_config.json").unlink(), r"bert_config\.json: unreadable"),
    "no vocabulary": (lambda d: (d / "vocab.txt").unlink(), r"vocab\.txt: cannot read"),
}


@pytest.mark.parametrize("damage", FILES)
def test_damaged_files_are_refused(damage, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    change, expected = FILES[damage]
    change(place)
    line = refused(place)
    assert re.search(expected, line), line


WORDS, DENSE = "bert/embeddings/word_embeddings", "bert/encoder/layer_1/intermediate/dense/kernel"
ROWS = len(outside.PIECES)
TENSORS = {
    "missing": (lambda t: t.pop(DENSE), f"{DENSE} is missing, expected [16, 24]"),
    "surplus": (lambda t: t.update(extra=t[DENSE]), "extra [16, 24] has no place in a BERT"),
    "transposed": (
        lambda t: t.update({DENSE: t[DENSE].T}),
        f"{DENSE} is [24, 16], expected [16, 24]",
    ),
    "rows": (
        lambda t: t.update({WORDS: t[WORDS][:-1]}),
        f"{WORDS} is [{ROWS - 1}, 16], expected [{ROWS}, 16]",
    ),
    "nan": (lambda t: t[DENSE].__setitem__((3, 3), np.nan), f"{DENSE} [16, 24]: 1 values are NaN"),
    "infinite": (lambda t: t[WORDS].__setitem__(3, np.inf), f"{WORDS} [{ROWS}, 16]: 16 values"),
    "double": (
        lambda t: t.update({DENSE: t[DENSE].astype(np.float64)}),
        f"{DENSE} is float64, expected one of float32, float16, bfloat16",
    ),
    "whole numbers": (
        lambda t: t.update({DENSE: t[DENSE].astype(np.int32)}),
        f"{DENSE} is int32, expected one of",
    ),
}


@pytest.mark.parametrize("damage", TENSORS)
def test_damaged_tensors_are_refused(damage, tmp_path):
    found = outside.make_tensors("google")
    change, expected = TENSORS[damage]
    change(found)
    line = refused(outside.write_google(tmp_path / "model", found))
    assert expected in line


SETTINGS = {
    "activation": ({"hidden_act": "tanh"}, "bert_config.json: hidden_act is 'tanh'"),
    "no activation": ({"hidden_act": []}, "bert_config.json: hidden_act is []"),
    "missing": ({"hidden_size": None}, "bert_config.json: hidden_size is None"),
    "string": ({"num_hidden_layers": "2"}, "num_hidden_layers is '2'"),
    "heads": ({"num_attention_heads": 3}, "num_attention_heads 3, hidden_size 16"),
    "width": ({"hidden_size": 10**12}, f"{WORDS} is [{ROWS}, 16], expected [{ROWS}, {10**12}]"),
    "layers": ({"num_hidden_layers": 10**12}, f"{10**12} layers in its settings, and 46 tensors"),
    "more layers": ({"num_hidden_layers": 3}, "bert/encoder/layer_2/attention/self/query/kernel"),
    "fewer layers": ({"num_hidden_layers": 1}, "has no place in a BERT"),
    "pieces": ({"vocab_size": 10}, f"{WORDS} is [{ROWS}, 16], expected [10, 16]"),
    "dropout": ({"hidden_dropout_prob": 10**400}, "hidden_dropout_prob is 1000"),
}


@pytest.mark.parametrize("damage", SETTINGS)
def test_wrong_settings_are_refused(damage, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    change, expected = SETTINGS[damage]
    outside.write_config(place / "bert_config.json", outside.google_config() | change)
    assert expected in refused(place)


def test_a_vocabulary_that_does_not_fit_is_refused(made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    outside.write_vocabulary(place, outside.PIECES[:-1])
    line = refused(place)
    assert f"the tokenizer has {ROWS - 1} pieces, {WORDS} is [{ROWS}, 16]" in line


@pytest.mark.parametrize("kind", [np.float16, tf.bfloat16.as_numpy_dtype])
def test_halves_are_read_exactly(kind, tmp_path):
    found = {name: array.astype(kind) for name, array in outside.make_tensors("google").items()}
    model = open_directory(outside.write_google(tmp_path / "model", found))
    positions = model.params["encoder"]["embedder"]["positions"]
    assert positions.dtype == np.float32
    expected = found["bert/embeddings/position_embeddings"].astype(np.float32)
    assert (np.asarray(positions) == expected).all()


def test_without_tensorflow_it_says_so(made):
    code = "import sys; sys.modules['tensorflow'] = None\n"
    code += "from pathlib import Path; from bert_jax import errors\nfrom bert_jax.commands import load_model\n"
    code += f"try: load_model.read_source(Path({str(made)!r}))\n"
    code += "except errors.BadInput as error: print(error)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ.copy()
    )
    assert "there is no TensorFlow" in process.stdout, process.stderr
