"""Valid models of other programs are read bit for bit, in all spellings of their tensor names."""

import ml_dtypes
import numpy as np
import pytest
from kits import external_models
from kits.malformed_inputs import (
    FORMATS,
    WORDS,
    check_same,
    open_directory,
    refused_import,
    spelled,
    split,
    write,
    write_tokenizer,
)

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


@pytest.mark.parametrize("spell", [old_names, with_copies, with_decoder_bias, with_buffers])
def test_all_spellings_of_tensor_names_are_read(spell, tmp_path):
    tensors = external_models.make_tensors()
    model = open_directory(external_models.write_huggingface(tmp_path / "model", spell(tensors)))
    check_same(model.params, tensors)
    assert model.info["fresh"] == [] and model.info["imported"]["unused"] == []


@pytest.mark.parametrize("spell", [dict, old_names, with_buffers])
def test_a_model_without_heads_is_read(spell, tmp_path):
    tensors = external_models.make_tensors(parts=("encoder", "pooler"))
    bare = {name.removeprefix("bert."): array for name, array in spell(tensors).items()}
    model = open_directory(external_models.write_huggingface(tmp_path / "model", bare))
    check_same(model.params, tensors, ("encoder", "pooler"))
    assert model.info["fresh"] == ["mlm", "pair"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_tensors_are_read_exactly(form, dtype, tmp_path):
    tensors = {
        name: array.astype(dtype) for name, array in external_models.make_tensors(form).items()
    }
    check_same(open_directory(write(form, tmp_path / "m", tensors)).params, tensors, form=form)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("heads", [(), ("mlm",), ("pooler",), ("pooler", "pair"), ("mlm", "pair")])
def test_heads_may_be_absent(form, heads, tmp_path):
    parts = {"encoder", *heads}
    tensors = external_models.make_tensors(form, parts)
    model = open_directory(write(form, tmp_path / "model", tensors))
    paired = bool(parts & {"pooler", "pair"})
    assert model.config.objective.pair_task == ("nsp" if paired else "none")
    needed = {"encoder", "mlm"} | ({"pooler", "pair"} if paired else set())
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
    model = open_directory(
        external_models.write_huggingface(tmp_path / "model", **changes)
    ).config.model
    assert (model.activation, model.epsilon, model.dropout) == ("gelu_tanh", 1e-5, 0)
    assert (model.heads, model.type_vocabulary, model.max_length) == (4, 2, 32)


# --- The tokenizer --------------------------------------------------------------------------------


def test_tokenizer_json_takes_precedence_over_vocab_txt(source):
    write_tokenizer(source)
    assert not open_directory(source).tokenizer.lowercase
    external_models.write_vocabulary(source, [*external_models.PIECES[:-1], "else"])
    assert refused_import(source).startswith(f"{source / 'vocab.txt'}: ")
