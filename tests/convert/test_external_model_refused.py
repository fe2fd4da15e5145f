"""Damaged models of other programs are refused in one line that names the problem (random damage: tests/fuzz)."""

import json
import re

import numpy as np
import pytest
from kits import external_models
from kits.malformed_inputs import (
    CONFIGS,
    FORMATS,
    UP,
    WEIGHTS,
    WORDS,
    refused_import,
    spelled,
    split,
    write,
    write_tokenizer,
)

# --- Damages: functions (directory, format) that change the files ---------------------------------


def tensors(change):
    """Returns a damage. change(tensors, name): changes the tensors; name is that of UP in the format."""

    def damage(directory, form):
        arrays = external_models.make_tensors(form)
        change(arrays, spelled(form, UP))
        write(form, directory, arrays)

    return damage


def setting(key, value):
    def damage(directory, form):
        path = directory / CONFIGS[form]
        external_models.write_config(path, json.loads(path.read_text()) | {key: value})

    return damage


def pieces(directory, form):
    external_models.write_vocabulary(directory, [*external_models.PIECES, "one more"])


def edit(name, change):
    """Returns a damage. change(content): the new content of the file."""
    return lambda directory, form: (directory / name).write_bytes(
        change((directory / name).read_bytes())
    )


def truncate(name, end):
    return edit(name, lambda content: content[:end])


def flip_bit(name):
    return edit(name, lambda content: content[:500] + bytes([content[500] ^ 4]) + content[501:])


def text(name, content):
    return lambda directory, form: (directory / name).write_text(content)


def delete(name):
    return lambda directory, form: (directory / name).unlink()


def rename(name):
    return lambda directory, form: (directory / WEIGHTS).rename(directory / name)


def tokenizer(change):
    return lambda directory, form: write_tokenizer(directory, change)


def drop_shard(directory, form):
    split(directory)
    (directory / "model-00002-of-00002.safetensors").unlink()


# --- {name: (damage, pattern of the message)}; {up} is the name of a tensor -----------------------

NAME, TABLE = spelled("huggingface", UP), spelled("huggingface", WORDS)
NORM, DECODER = "bert.embeddings.LayerNorm.gamma", "cls.predictions.decoder"
DATA, TENSOR_INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"
HUGE = 10**12  # refused before an array of this size is allocated
BOTH = {
    "missing": (tensors(lambda t, up: t.pop(up)), "{up}"),
    "transposed": (tensors(lambda t, up: t.update({up: t[up].T.copy()})), "{up}"),
    "NaN": (tensors(lambda t, up: t[up].__setitem__((3, 3), np.nan)), "{up}"),
    "infinite": (tensors(lambda t, up: t[up].__setitem__(3, -np.inf)), "{up}"),
    "double": (tensors(lambda t, up: t.update({up: t[up].astype(np.float64)})), "{up}"),
    "no width": (setting("hidden_size", None), "hidden_size"),
    "layers as text": (setting("num_hidden_layers", "2"), "num_hidden_layers"),
    "no pieces": (setting("vocab_size", -1), "vocab_size"),
    "heads that do not divide": (setting("num_attention_heads", 3), "num_attention_heads"),
    "unknown activation": (setting("hidden_act", "swish"), "hidden_act"),
    "dropout over one": (setting("hidden_dropout_prob", 10**400), "hidden_dropout_prob"),
    "huge width": (setting("hidden_size", HUGE), "mbeddings"),
    "many layers": (setting("num_hidden_layers", HUGE), f"{HUGE} layers"),
    "another layer": (setting("num_hidden_layers", 3), r"layer[._]2"),
    "a piece too many": (pieces, f"{len(external_models.PIECES) + 1} pieces"),
}
HUGGINGFACE = {
    "half a head": (tensors(lambda t, _: t.pop("cls.predictions.bias")), r"cls\.predictions\.bias"),
    "surplus": (tensors(lambda t, _: t.update({"new.weight": t[NAME]})), r"new\.weight"),
    "twice": (tensors(lambda t, _: t.update({NORM: np.ones(16, np.float32)})), NORM),
    "not tied": (tensors(lambda t, _: t.update({f"{DECODER}.weight": t[TABLE] + 1})), DECODER),
    "two biases": (tensors(lambda t, _: t.update({f"{DECODER}.bias": t[TABLE][:, 0]})), DECODER),
    "nothing": (tensors(lambda t, _: t.clear()), "0 tensors"),
    "another model": (setting("model_type", "roberta"), "model_type"),
    "a decoder": (setting("is_decoder", True), "is_decoder"),
    "no epsilon": (setting("layer_norm_eps", 0), "layer_norm_eps"),
    "deep config": (text("config.json", "[" * 100000), r"config\.json"),
    "no object": (text("config.json", "[1]"), r"config\.json"),
    "deep tokenizer": (text("tokenizer.json", "[" * 100000), r"tokenizer\.json"),
    "no model": (text("tokenizer.json", "{}"), r"tokenizer\.json"),
    "a far id": (tokenizer(lambda d: d["model"]["vocab"].update(far=2**32 - 1)), "tokenizer"),
    "normalizer": (tokenizer(lambda d: d.update(normalizer="lower")), "tokenizer"),
    "empty": (truncate(WEIGHTS, 0), WEIGHTS),
    "header cut": (truncate(WEIGHTS, 100), WEIGHTS),
    "data cut": (truncate(WEIGHTS, -1), WEIGHTS),
    "a shard is missing": (drop_shard, "model-00001-of-00002.safetensors: 1 shards"),
    "pickle": (rename("pytorch_model.bin"), r"pytorch_model\.bin"),
    "no weights": (rename("tf_model.h5"), WEIGHTS),
    "no tokenizer": (delete("vocab.txt"), r"vocab\.txt"),
}
GOOGLE = {
    "no data": (delete(DATA), r"ckpt\.data-"),
    "data cut to a page": (truncate(DATA, 1000), r"ckpt: bert/\S+ "),
    "a bit of the data": (flip_bit(DATA), r"ckpt: bert/\S+ "),
    "index cut": (truncate(TENSOR_INDEX, 1000), r"ckpt\.index"),
    "a bit of the index": (flip_bit(TENSOR_INDEX), r"ckpt\.index"),
    "no index": (delete(TENSOR_INDEX), r"ckpt\.index"),
    "no config": (delete("bert_config.json"), r"bert_config\.json"),
    "no vocabulary": (delete("vocab.txt"), r"vocab\.txt"),
}
DAMAGES = {"huggingface": BOTH | HUGGINGFACE, "google": BOTH | GOOGLE}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """{format: an undamaged directory}."""
    directory = tmp_path_factory.mktemp("intact")
    return {form: write(form, directory / form) for form in FORMATS}


@pytest.mark.parametrize(
    ("form", "kind"), [(form, kind) for form in FORMATS for kind in DAMAGES[form]]
)
def test_a_damaged_model_is_refused_with_the_problem(form, kind, intact, tmp_path):
    directory = external_models.copy(intact[form], tmp_path / "model")
    damage, pattern = DAMAGES[form][kind]
    damage(directory, form)
    line = refused_import(directory)
    assert line.startswith(str(directory))
    assert re.search(pattern.replace("{up}", re.escape(spelled(form, UP))), line), line


def test_directories_without_a_model_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert refused_import(tmp_path / name).startswith(str(tmp_path / name))
