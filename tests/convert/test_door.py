"""Models of others at the door: what is right comes in bit for bit, what is not is refused in one line."""

import ml_dtypes
import numpy as np
import pytest
from kits import outside
from kits.doors import BIAS, DECODER, ROWS, UP, WORDS, check_same, open_directory, refused, split


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return outside.write_huggingface(tmp_path_factory.mktemp("huggingface") / "model")


# --- What comes in --------------------------------------------------------------------------------


def bare(tensors):
    return {name.removeprefix("bert."): array for name, array in tensors.items()}


def old_names(tensors):
    turns = (".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta")
    for new, old in turns:
        tensors = {name.replace(new, old): array for name, array in tensors.items()}
    return tensors


def with_copies(tensors):
    return tensors | {f"{DECODER}.weight": tensors[WORDS], f"{DECODER}.bias": tensors[BIAS]}


def with_decoders_bias(tensors):
    renamed = {f"{DECODER}.bias": tensors[BIAS]}
    return {name: array for name, array in tensors.items() if name != BIAS} | renamed


def with_buffers(tensors):
    ids = {"bert.embeddings.position_ids": np.arange(32)[None]}
    return tensors | ids | {"bert.embeddings.token_type_ids": np.zeros((1, 32), np.int64)}


SPELLINGS = {
    function.__name__: function
    for function in (dict, old_names, with_copies, with_decoders_bias, with_buffers)
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_the_same_model(spelling, tmp_path):
    tensors = outside.make_tensors()
    place = outside.write_huggingface(tmp_path / "model", SPELLINGS[spelling](tensors))
    model = open_directory(place)
    check_same(model.params, tensors)
    assert model.facts["fresh"] == [] and model.facts["imported"]["unused"] == []
    assert model.facts["imported"]["left_out"] == 2 * (spelling == "with_buffers")


@pytest.mark.parametrize("spelling", [dict, old_names, with_buffers])
def test_a_bare_encoder(spelling, tmp_path):
    tensors = outside.make_tensors(parts=("encoder", "pooler"))
    model = open_directory(outside.write_huggingface(tmp_path / "m", bare(spelling(tensors))))
    check_same(model.params, tensors, ("encoder", "pooler"))
    assert model.facts["fresh"] == ["mlm", "pair"]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_read_exactly(kind, tmp_path):
    tensors = {name: array.astype(kind) for name, array in outside.make_tensors().items()}
    check_same(open_directory(outside.write_huggingface(tmp_path / "m", tensors)).params, tensors)


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize("mlm", [True, False])
@pytest.mark.parametrize("pair", [True, False])
def test_heads_present_and_absent(pooler, mlm, pair, tmp_path):
    heads = {"pooler": pooler, "mlm": mlm, "pair": pair}
    there = {"encoder", *(part for part, is_there in heads.items() if is_there)}
    tensors = outside.make_tensors(parts=there)
    model = open_directory(outside.write_huggingface(tmp_path / "model", tensors))
    paired = pooler or pair
    assert model.config.objective.pairs == ("nsp" if paired else "none")
    needed = {"encoder", "mlm"} | ({"pooler", "pair"} if paired else set())
    assert model.facts["fresh"] == sorted(needed - there)
    check_same(model.params, tensors, there)


def test_several_files(made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    split(place)
    check_same(open_directory(place).params, outside.make_tensors())


def test_files_that_are_links(made, tmp_path):
    """As the hub's cache has them."""
    place = tmp_path / "model"
    place.mkdir()
    for file in made.iterdir():
        (place / file.name).symlink_to(file)
    check_same(open_directory(place).params, outside.make_tensors())


def test_settings_come_from_config_json(tmp_path):
    changes = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0}
    changes |= {"added": [1], "type_vocab_size": 2, "num_attention_heads": 4}
    model = open_directory(outside.write_huggingface(tmp_path / "model", **changes)).config.model
    assert (model.activation, model.epsilon, model.dropout) == ("gelu_tanh", 1e-5, 0)
    assert (model.heads, model.segments, model.positions) == (4, 2, 32)


# --- What does not: tensors -----------------------------------------------------------------------

TENSORS = {
    "missing": (lambda t: t.pop(UP), f"{UP} is missing, expected [24, 16]"),
    "half a head": (
        lambda t: t.pop("cls.predictions.transform.dense.weight"),
        "cls.predictions.transform.dense.weight is missing, expected [16, 16]",
    ),
    "surplus": (
        lambda t: t.update({"classifier.weight": np.zeros((3, 16), np.float32)}),
        "classifier.weight [3, 16] has no place in a BERT",
    ),
    "transposed": (
        lambda t: t.update({UP: t[UP].T.copy()}),
        f"{UP} is [16, 24], expected [24, 16]",
    ),
    "rows": (
        lambda t: t.update({WORDS: t[WORDS][:-1]}),
        f"{WORDS} is [{ROWS - 1}, 16], expected [{ROWS}, 16]",
    ),
    "positions": (
        lambda t: t.update({"bert.embeddings.position_embeddings.weight": t[WORDS][:31]}),
        "bert.embeddings.position_embeddings.weight is [31, 16], expected [32, 16]",
    ),
    "scalar": (
        lambda t: t.update({UP: np.array(1, np.float32)}),
        f"{UP} is [], expected [24, 16]",
    ),
    "twice": (
        lambda t: t.update({"bert.embeddings.LayerNorm.gamma": np.ones(16, np.float32)}),
        "bert.embeddings.LayerNorm.gamma and bert.embeddings.LayerNorm.weight are the same tensor",
    ),
    "nan": (lambda t: t[UP].__setitem__((3, 3), np.nan), f"{UP} [24, 16]: 1 values are NaN"),
    "infinite": (lambda t: t[WORDS].__setitem__(3, -np.inf), f"{WORDS} [{ROWS}, 16]: 16 values"),
    "nan in both copies": (
        lambda t: t.update({WORDS: t[WORDS] * np.nan, f"{DECODER}.weight": t[WORDS] * np.nan}),
        f"{WORDS} [{ROWS}, 16]: {ROWS * 16} values are NaN",
    ),
    "double": (lambda t: t.update({UP: t[UP].astype(np.float64)}), f"{UP} is F64, expected one of"),
    "whole numbers": (
        lambda t: t.update({UP: t[UP].astype(np.int8)}),
        f"{UP} is I8, expected one of",
    ),
    "not tied": (
        lambda t: t.update({f"{DECODER}.weight": t[WORDS] + 1}),
        f"{DECODER}.weight is not {WORDS}; models whose output matrix is not tied",
    ),
    "two biases": (
        lambda t: t.update({f"{DECODER}.bias": t[BIAS] + 1}),
        f"{DECODER}.bias is not {BIAS}",
    ),
    "nothing": (lambda t: t.clear(), "2 layers in its settings, and 0 tensors"),
}


@pytest.mark.parametrize("damage", TENSORS)
def test_damaged_tensors_are_refused(damage, tmp_path):
    tensors = outside.make_tensors()
    change, expected = TENSORS[damage]
    change(tensors)
    place = outside.write_huggingface(tmp_path / "model", tensors)
    line = refused(place)
    assert expected in line and line.startswith(str(place)), line
