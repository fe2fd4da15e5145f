"""Models of other programs: valid ones are read bit for bit, in all spellings of their tensor names; damaged ones are
refused in one line that names the problem (random damage: tests/fuzz)."""

import json
import os
import re

import ml_dtypes
import numpy as np
import pytest
from kits import external_models
from kits.damage import flip_bit
from kits.malformed_inputs import (
    CONFIGS,
    FORMATS,
    UP,
    WEIGHTS,
    WORDS,
    check_same,
    open_directory,
    refused_import,
    spelled,
    split,
    write,
    write_tokenizer,
)

from bert_jax.convert import open_model

BIAS, DECODER = "cls.predictions.bias", "cls.predictions.decoder"


@pytest.fixture
def source(tmp_path):
    return external_models.write_huggingface(tmp_path / "model")


def old_names(tensors):
    renames = (".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta")
    for new, old in renames:
        tensors = {name.replace(new, old): array for name, array in tensors.items()}
    return tensors


def with_copies(tensors):
    copies = {f"{DECODER}.weight": tensors[spelled("huggingface", WORDS)]}
    return tensors | copies | {f"{DECODER}.bias": tensors[BIAS]}


def with_decoder_bias(tensors):
    renamed = {f"{DECODER}.bias": tensors[BIAS]}
    return {name: array for name, array in tensors.items() if name != BIAS} | renamed


def with_buffers(tensors):
    ids = {"bert.embeddings.position_ids": np.arange(32)[None]}
    return tensors | ids | {"bert.embeddings.token_type_ids": np.zeros((1, 32), np.int64)}


def with_wrappers(tensors):
    """The names of torch.compile within DataParallel, and of a compiled part."""
    wrapped = {name.replace(".encoder.", ".encoder._orig_mod."): x for name, x in tensors.items()}
    return {f"module._orig_mod.{name}": array for name, array in with_buffers(wrapped).items()}


SPELLINGS = [old_names, with_copies, with_decoder_bias, with_buffers, with_wrappers]


@pytest.mark.parametrize("spell", SPELLINGS)
def test_all_spellings_of_tensor_names_are_read(spell, tmp_path):
    tensors = external_models.make_tensors()
    model = open_directory(external_models.write_huggingface(tmp_path / "model", spell(tensors)))
    check_same(model.params, tensors)
    assert model.info["fresh"] == [] and model.info["imported"]["unused"] == []


@pytest.mark.parametrize("spell", [dict, old_names, with_buffers])
def test_a_model_without_heads_is_read(spell, tmp_path):
    tensors = external_models.make_tensors(parts=("network", "pooler"))
    bare = {name.removeprefix("bert."): array for name, array in spell(tensors).items()}
    model = open_directory(external_models.write_huggingface(tmp_path / "model", bare))
    check_same(model.params, tensors, ("network", "pooler"))
    assert model.info["fresh"] == ["mlm", "pair"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_tensors_are_read_exactly(form, dtype, tmp_path):
    exact = external_models.make_tensors(form)
    tensors = {name: array.astype(dtype) for name, array in exact.items()}
    check_same(open_directory(write(form, tmp_path / "m", tensors)).params, tensors, form=form)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("heads", [(), ("mlm",), ("pooler",), ("pooler", "pair"), ("mlm", "pair")])
def test_heads_may_be_absent(form, heads, tmp_path):
    parts = {"network", *heads}
    tensors = external_models.make_tensors(form, parts)
    model = open_directory(write(form, tmp_path / "model", tensors))
    paired = bool(parts & {"pooler", "pair"})
    assert model.config.task.pair_task == ("nsp" if paired else "none")
    needed = {"network", "mlm"} | ({"pooler", "pair"} if paired else set())
    assert model.info["fresh"] == sorted(needed - parts)
    check_same(model.params, tensors, parts, form)


def test_shards_and_symbolic_links_are_read(source, tmp_path):
    """The hub's cache has symbolic links to files."""
    split(source)
    (tmp_path / "links").mkdir()
    for file in source.iterdir():
        (tmp_path / "links" / file.name).symlink_to(file)
    check_same(open_directory(tmp_path / "links").params, external_models.make_tensors())


def test_settings_come_from_config_json(tmp_path):
    changes = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0}
    changes |= {"added": [1], "num_attention_heads": 4}
    directory = external_models.write_huggingface(tmp_path / "model", **changes)
    model = open_directory(directory).config.model
    assert (model.activation, model.epsilon, model.dropout) == ("gelu_tanh", 1e-5, 0)
    assert (model.heads, model.type_vocabulary, model.max_length) == (4, 2, 32)


def test_without_a_model_type_it_is_bert(source):
    """As the oldest files of the hub are."""
    path = source / "config.json"
    values = json.loads(path.read_text())
    del values["model_type"]
    path.write_text(json.dumps(values))
    assert open_directory(source).config.model.name == "bert"


# --- The tokenizer --------------------------------------------------------------------------------


def test_tokenizer_json_takes_precedence_over_vocab_txt(source):
    """As in transformers."""
    write_tokenizer(source)
    external_models.write_vocabulary(source, [*external_models.PIECES[:-1], "else"])
    assert open_model.read_source(source).tokenizer.pieces == external_models.PIECES


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


def truncate(name, size):
    return lambda directory, form: os.truncate(directory / name, size)


def flipped(name):
    return lambda directory, form: flip_bit(directory / name, 500, 2)


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
DATA, TENSOR_INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"
HUGE = 10**12  # refused before an array of this size is allocated
BOTH = {
    "missing": (tensors(lambda t, up: t.pop(up)), "{up}"),
    "transposed": (tensors(lambda t, up: t.update({up: t[up].T.copy()})), "{up}"),
    "NaN": (tensors(lambda t, up: t[up].__setitem__((3, 3), np.nan)), "{up}"),
    "double": (tensors(lambda t, up: t.update({up: t[up].astype(np.float64)})), "{up}"),
    "no width": (setting("hidden_size", None), "hidden_size"),
    "heads that do not divide": (setting("num_attention_heads", 3), r"model\.heads=3"),
    "unknown activation": (setting("hidden_act", "swish"), "hidden_act"),
    "dropout over one": (setting("hidden_dropout_prob", 10**400), "hidden_dropout_prob"),
    "many layers": (setting("num_hidden_layers", HUGE), f"{HUGE} layers"),
    "another layer": (setting("num_hidden_layers", 3), r"layer[._]2"),
    "a piece too many": (pieces, f"{len(external_models.PIECES) + 1} pieces.*'one more'"),
}
HUGGINGFACE = {
    "surplus": (tensors(lambda t, _: t.update({"new.weight": t[NAME]})), r"new\.weight"),
    "not tied": (tensors(lambda t, _: t.update({f"{DECODER}.weight": t[TABLE] + 1})), DECODER),
    "two biases": (tensors(lambda t, _: t.update({f"{DECODER}.bias": t[TABLE][:, 0]})), DECODER),
    "nothing": (tensors(lambda t, _: t.clear()), "0 tensors"),
    "another model": (setting("model_type", "distilbert"), "model_type"),
    "cross-attention": (setting("add_cross_attention", True), "add_cross_attention"),
    "no epsilon": (setting("layer_norm_eps", 0), "epsilon"),
    "deep config": (text("config.json", "[" * 100000), r"config\.json"),
    "no model": (text("tokenizer.json", "{}"), r"tokenizer\.json"),
    "a far id": (tokenizer(lambda d: d["model"]["vocab"].update(far=2**32 - 1)), "tokenizer"),
    "normalizer": (tokenizer(lambda d: d.update(normalizer="lower")), "tokenizer"),
    "empty": (truncate(WEIGHTS, 0), WEIGHTS),
    "data cut": (truncate(WEIGHTS, 9000), WEIGHTS),
    "a shard is missing": (drop_shard, "model-00001-of-00002.safetensors: 1 shards"),
    "pickle": (rename("pytorch_model.bin"), r"pytorch_model\.bin"),
    "no weights": (rename("tf_model.h5"), WEIGHTS),
    "no tokenizer": (delete("vocab.txt"), r"vocab\.txt"),
}
GOOGLE = {
    "data cut to a page": (truncate(DATA, 1000), r"ckpt: bert/\S+ "),
    "a bit of the data": (flipped(DATA), r"ckpt: bert/\S+ "),
    "index cut": (truncate(TENSOR_INDEX, 1000), r"ckpt\.index"),
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
    """And files."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name in ("nowhere", "empty", "file"):
        assert refused_import(tmp_path / name).startswith(str(tmp_path / name))
