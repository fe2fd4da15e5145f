"""Models of others that are damaged are refused in one line that names what is wrong (chance damage: tests/fuzz)."""

import json
import re

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

# --- Damages: functions of a directory and its format ---------------------------------------------


def tensors(change):
    """change: of the tensors, with the name of UP."""

    def damage(place, form):
        found = outside.make_tensors(form)
        change(found, spelled(form, UP))
        write(form, place, found)

    return damage


def setting(key, value):
    def damage(place, form):
        path = place / CONFIGS[form]
        outside.write_config(path, json.loads(path.read_text()) | {key: value})

    return damage


def pieces(place, form):
    outside.write_vocabulary(place, [*outside.PIECES, "one more"])


def edit(name, change):
    """change: of the content of a file."""
    return lambda place, form: (place / name).write_bytes(change((place / name).read_bytes()))


def cut(name, end):
    return edit(name, lambda content: content[:end])


def flip(name):
    return edit(name, lambda content: content[:500] + bytes([content[500] ^ 4]) + content[501:])


def text(name, content):
    return lambda place, form: (place / name).write_text(content)


def lose(name):
    return lambda place, form: (place / name).unlink()


def rename(name):
    return lambda place, form: (place / WEIGHTS).rename(place / name)


def tokenizer(change):
    return lambda place, form: write_tokenizer(place, change)


def shards(change):
    """change: of the table of an index, {tensor: file}."""

    def damage(place, form):
        index = split(place)
        change(index["weight_map"])
        (place / INDEX).write_text(json.dumps(index))

    return damage


def drop_shard(place, form):
    split(place)
    (place / "model-00002-of-00002.safetensors").unlink()


# --- What is done, and a pattern of what is named; {up} is the name of a tensor -------------------

NAME, TABLE = spelled("huggingface", UP), spelled("huggingface", WORDS)
NORM, DECODER = "bert.embeddings.LayerNorm.gamma", "cls.predictions.decoder"
DATA, TENSOR_INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"
HUGE = 10**12  # refused before any array is made of such a size
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
    "a piece too many": (pieces, f"{len(outside.PIECES) + 1} pieces"),
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
    "empty": (cut(WEIGHTS, 0), WEIGHTS),
    "header cut": (cut(WEIGHTS, 100), WEIGHTS),
    "data cut": (cut(WEIGHTS, -1), WEIGHTS),
    "a shard is missing": (drop_shard, "model-00002-of-00002.safetensors"),
    "a tensor of no shard": (shards(lambda m: m.update(lost=m[NAME])), "lost"),
    "up": (shards(lambda m: m.update({NAME: "../x.safetensors"})), INDEX),
    "pickle": (rename("pytorch_model.bin"), r"pytorch_model\.bin"),
    "no weights": (rename("tf_model.h5"), WEIGHTS),
    "no tokenizer": (lose("vocab.txt"), r"vocab\.txt"),
}
GOOGLE = {
    "no data": (lose(DATA), r"ckpt\.data-"),
    "data cut to a page": (cut(DATA, 1000), r"ckpt: bert/\S+ "),
    "a bit of the data": (flip(DATA), r"ckpt: bert/\S+ "),
    "index cut": (cut(TENSOR_INDEX, 1000), r"ckpt\.index"),
    "a bit of the index": (flip(TENSOR_INDEX), r"ckpt\.index"),
    "no index": (lose(TENSOR_INDEX), r"ckpt\.index"),
    "no config": (lose("bert_config.json"), r"bert_config\.json"),
    "no vocabulary": (lose("vocab.txt"), r"vocab\.txt"),
}
DAMAGES = {"huggingface": BOTH | HUGGINGFACE, "google": BOTH | GOOGLE}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """{format: a directory that nobody changes}."""
    directory = tmp_path_factory.mktemp("sound")
    return {form: write(form, directory / form) for form in FORMATS}


@pytest.mark.parametrize(
    ("form", "kind"), [(form, kind) for form in FORMATS for kind in DAMAGES[form]]
)
def test_what_is_damaged_is_named(form, kind, sound, tmp_path):
    place = outside.copy(sound[form], tmp_path / "model")
    damage, named = DAMAGES[form][kind]
    damage(place, form)
    line = refused_import(place)
    assert line.startswith(str(place))
    assert re.search(named.replace("{up}", re.escape(spelled(form, UP))), line), line


def test_directories_without_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert refused_import(tmp_path / name).startswith(str(tmp_path / name))
