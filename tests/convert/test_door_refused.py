"""Models of others that are damaged are refused in one line that names what is wrong (chance damage: tests/fuzz)."""

import json
import re
import struct

import numpy as np
import pytest
from kits import outside
from kits.doors import (
    CONFIGS,
    FORMATS,
    INDEX,
    UP,
    WEIGHTS,
    WORDS,
    refused_import,
    spelled,
    split,
    write,
    write_tokenizer,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """{format: a directory that nobody changes}."""
    directory = tmp_path_factory.mktemp("sound")
    return {form: write(form, directory / form) for form in FORMATS}


@pytest.fixture
def made(sound, tmp_path):
    """A Hugging Face directory to be damaged."""
    return outside.copy(sound["huggingface"], tmp_path / "model")


# --- Tensors --------------------------------------------------------------------------------------

NAME, TABLE = spelled("huggingface", UP), spelled("huggingface", WORDS)
NORM, DECODER = "bert.embeddings.LayerNorm.gamma", "cls.predictions.decoder"
# Of tensors t, with the name of UP in the format.
TENSORS = {
    "missing": lambda t, up: t.pop(up),
    "transposed": lambda t, up: t.update({up: t[up].T.copy()}),
    "a scalar": lambda t, up: t.update({up: np.array(1, np.float32)}),
    "NaN": lambda t, up: t[up].__setitem__((3, 3), np.nan),
    "infinite": lambda t, up: t[up].__setitem__(3, -np.inf),
    "double": lambda t, up: t.update({up: t[up].astype(np.float64)}),
    "whole numbers": lambda t, up: t.update({up: t[up].astype(np.int8)}),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("damage", TENSORS)
def test_damaged_tensors_are_named(damage, form, tmp_path):
    tensors, up = outside.make_tensors(form), spelled(form, UP)
    TENSORS[damage](tensors, up)
    place = write(form, tmp_path / "model", tensors)
    line = refused_import(place)
    assert line.startswith(str(place)) and up in line


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop("cls.predictions.bias"), "cls.predictions.bias"),
        (lambda t: t.update({"classifier.weight": t[NAME]}), "classifier.weight"),
        (lambda t: t.update({NORM: np.ones(16, np.float32)}), NORM),
        (lambda t: t.update({f"{DECODER}.weight": t[TABLE] + 1}), f"{DECODER}.weight"),
        (lambda t: t.update({f"{DECODER}.bias": t[TABLE][:, 0]}), f"{DECODER}.bias"),
        (lambda t: t.clear(), "0 tensors"),
    ],
    ids=["half a head", "surplus", "twice", "not tied", "two biases", "nothing"],
)
def test_tensors_that_contradict_each_other(change, named, tmp_path):
    tensors = outside.make_tensors()
    change(tensors)
    assert named in refused_import(outside.write_huggingface(tmp_path / "model", tensors))


# --- Settings and tokenizers ----------------------------------------------------------------------

BOTH = [("hidden_size", None), ("num_hidden_layers", "2"), ("vocab_size", -1)]
BOTH += [("intermediate_size", 24.0), ("max_position_embeddings", True), ("type_vocab_size", 0)]
BOTH += [("num_attention_heads", 3), ("hidden_act", "swish"), ("hidden_act", ["gelu"])]
BOTH += [("hidden_dropout_prob", "0.1"), ("attention_probs_dropout_prob", 1.5)]
BOTH += [("initializer_range", float("nan")), ("hidden_dropout_prob", 10**400)]
THEIRS = [("model_type", "roberta"), ("position_embedding_type", "relative_key")]
THEIRS += [("is_decoder", True), ("add_cross_attention", True), ("layer_norm_eps", 0)]
VALUES = [(form, *value) for form in FORMATS for value in BOTH]
VALUES += [("huggingface", *value) for value in THEIRS]


@pytest.mark.parametrize(("form", "key", "value"), VALUES)
def test_wrong_settings_are_named(form, key, value, sound, tmp_path):
    place = outside.copy(sound[form], tmp_path / "model")
    path = place / CONFIGS[form]
    outside.write_config(path, json.loads(path.read_text()) | {key: value})
    line = refused_import(place)
    assert line.startswith(f"{path}: ") and key in line


HUGE = 10**12


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("hidden_size", HUGE, WORDS),
        ("vocab_size", HUGE, WORDS),
        ("intermediate_size", HUGE, "encoder/blocks_0/feed_forward/up/kernel"),
        ("max_position_embeddings", HUGE, "encoder/embedder/positions"),
        ("type_vocab_size", HUGE, "encoder/embedder/segments"),
        ("num_hidden_layers", HUGE, None),
        ("num_hidden_layers", 3, "encoder/blocks_2/attention/query/kernel"),
    ],
)
def test_sizes_that_tensors_do_not_have(form, key, value, path, sound, tmp_path):
    """Refused before any array is made of such a size."""
    place = outside.copy(sound[form], tmp_path / "model")
    config = place / CONFIGS[form]
    outside.write_config(config, json.loads(config.read_text()) | {key: value})
    assert (spelled(form, path) if path else f"{HUGE} layers") in refused_import(place)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "[" * 100000, '{"model_type": "b\xff"}'])
def test_settings_that_are_no_json_object(text, made):
    (made / "config.json").write_bytes(text.encode("latin-1"))
    assert refused_import(made).startswith(f"{made / 'config.json'}: ")


@pytest.mark.parametrize("form", FORMATS)
def test_vocabularies_of_another_size(form, sound, tmp_path):
    place = outside.copy(sound[form], tmp_path / "model")
    outside.write_vocabulary(place, [*outside.PIECES, "one more"])
    assert f"{len(outside.PIECES) + 1} pieces" in refused_import(place)


TOKENIZERS = {
    "nested": "[" * 100000,
    "no model": "{}",
    "vocabulary of text": lambda d: d["model"].update(vocab={"a": "b"}),
    "a far id": lambda d: d["model"]["vocab"].update(far=2**32 - 1),
    "normalizer": lambda d: d.update(normalizer="lower"),
}


@pytest.mark.parametrize("damage", TOKENIZERS)
def test_damaged_tokenizers(damage, made):
    change = TOKENIZERS[damage]
    if isinstance(change, str):
        (made / "tokenizer.json").write_text(change)
    else:
        write_tokenizer(made, change)
    assert refused_import(made).startswith(str(made))


# --- Files ----------------------------------------------------------------------------------------


def edit(name, change):
    """A damage: a file has the content change(content)."""
    return lambda place: (place / name).write_bytes(change((place / name).read_bytes()))


def cut(name, end):
    return edit(name, lambda content: content[:end])


def flip(name):
    return edit(name, lambda content: content[:500] + bytes([content[500] ^ 4]) + content[501:])


def header(change):
    """A damage: the safetensors file has the header change(header)."""

    def changed(content):
        end = 8 + struct.unpack("<Q", content[:8])[0]
        text = change(content[8:end])
        return struct.pack("<Q", len(text)) + text + content[end:]

    return edit(WEIGHTS, changed)


def entry(**changes):
    """A damage: the header says something else of one tensor."""

    def changed(text):
        table = json.loads(text)
        return json.dumps(table | {NAME: table[NAME] | changes}).encode()

    return header(changed)


def reindex(change):
    def damage(place):
        index = split(place)
        change(index["weight_map"])
        (place / INDEX).write_text(json.dumps(index))

    return damage


def drop_shard(place):
    split(place)
    (place / "model-00002-of-00002.safetensors").unlink()


def lose(name):
    return lambda place: (place / name).unlink()


def rename(name):
    return lambda place: (place / WEIGHTS).rename(place / name)


DATA, TENSOR_INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"
# {damage: (format, change, a pattern of what is named)}
FILES = {
    "empty": ("huggingface", cut(WEIGHTS, 0), WEIGHTS),
    "header cut": ("huggingface", cut(WEIGHTS, 100), WEIGHTS),
    "data cut": ("huggingface", cut(WEIGHTS, -1), WEIGHTS),
    "not JSON": ("huggingface", header(lambda text: b"}" * 100), WEIGHTS),
    "offsets beyond": ("huggingface", entry(data_offsets=[10**15, 10**15 + 64]), WEIGHTS),
    "no data": ("google", lose(DATA), r"ckpt\.data-"),
    "data cut to a page": ("google", cut(DATA, 1000), r"ckpt: bert/\S+ "),
    "a bit of the data": ("google", flip(DATA), r"ckpt: bert/\S+ "),
    "index cut": ("google", cut(TENSOR_INDEX, 1000), r"ckpt\.index"),
    "a bit of the index": ("google", flip(TENSOR_INDEX), r"ckpt\.index"),
    "no index": ("google", lose(TENSOR_INDEX), r"ckpt\.index"),
    "no config": ("google", lose("bert_config.json"), r"bert_config\.json"),
    "no vocabulary": ("google", lose("vocab.txt"), r"vocab\.txt"),
    "a shard is missing": ("huggingface", drop_shard, "model-00002-of-00002.safetensors"),
    "a tensor of no shard": ("huggingface", reindex(lambda m: m.update(lost=m[NAME])), "lost"),
    "up": ("huggingface", reindex(lambda m: m.update({NAME: "../x.safetensors"})), INDEX),
    "another format": ("huggingface", reindex(lambda m: m.update({NAME: "x.bin"})), INDEX),
    "pickle": ("huggingface", rename("pytorch_model.bin"), "pytorch_model.bin"),
    "no weights": ("huggingface", rename("tf_model.h5"), "model.safetensors"),
    "no tokenizer": ("huggingface", lose("vocab.txt"), "vocab.txt"),
}


@pytest.mark.parametrize("damage", FILES)
def test_damaged_files_are_named(damage, sound, tmp_path):
    form, change, named = FILES[damage]
    place = outside.copy(sound[form], tmp_path / "model")
    change(place)
    line = refused_import(place)
    assert line.startswith(str(place)) and re.search(named, line)


def test_directories_without_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert refused_import(tmp_path / name).startswith(str(tmp_path / name))
