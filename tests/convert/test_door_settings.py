"""Settings and tokenizers at the door: what they say is taken, or refused in one line."""

import pytest
from kits import outside
from kits.doors import ROWS, WORDS, open_directory, refused, write_tokenizer

from bert_jax.commands import load_model
from bert_jax.errors import BadInput


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return outside.write_huggingface(tmp_path_factory.mktemp("huggingface") / "model")


# --- config.json ----------------------------------------------------------------------------------

SETTINGS = {
    "hidden_size": (None, "hidden_size is None, expected a positive whole number"),
    "num_hidden_layers": ("2", "num_hidden_layers is '2'"),
    "vocab_size": (-1, "vocab_size is -1"),
    "intermediate_size": (24.0, "intermediate_size is 24.0"),
    "max_position_embeddings": (True, "max_position_embeddings is True"),
    "type_vocab_size": (0, "type_vocab_size is 0"),
    "num_attention_heads": (3, "num_attention_heads 3, hidden_size 16, which does not divide"),
    "hidden_act": ("swish", "hidden_act is 'swish', expected one of gelu,"),
    "hidden_act ": (["gelu"], "hidden_act is ['gelu']"),
    "model_type": ("roberta", "model_type is 'roberta', expected 'bert'"),
    "position_embedding_type": ("relative_key", "position_embedding_type is 'relative_key'"),
    "is_decoder": (True, "is_decoder is True"),
    "add_cross_attention": (True, "add_cross_attention is True"),
    "hidden_dropout_prob": ("0.1", "hidden_dropout_prob is '0.1', expected a number"),
    "attention_probs_dropout_prob": (1.5, "attention_probs_dropout_prob is 1.5"),
    "initializer_range": (float("nan"), "initializer_range is nan"),
    "layer_norm_eps": (10**400, "layer_norm_eps is 1000"),
    "layer_norm_eps ": (0, "layer_norm_eps is 0, expected a number from 1.17"),
}


@pytest.mark.parametrize("key", SETTINGS)
def test_wrong_settings_are_refused(key, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    value, expected = SETTINGS[key]
    values = outside.huggingface_config() | {key.strip(): value}
    outside.write_config(place / "config.json", values)
    line = refused(place)
    assert expected in line and line.startswith(f"{place / 'config.json'}: ")


HUGE = 10**12
SIZES = {
    "hidden_size": f"{WORDS} is [{ROWS}, 16], expected [{ROWS}, {HUGE}]",
    "vocab_size": f"{WORDS} is [{ROWS}, 16], expected [{HUGE}, 16]",
    "intermediate_size": "intermediate.dense.weight is [24, 16], expected [1000000000000, 16]",
    "num_hidden_layers": f"{HUGE} layers in its settings, and 46 tensors",
    "max_position_embeddings": "position_embeddings.weight is [32, 16], expected [1000000000000,",
    "type_vocab_size": "token_type_embeddings.weight is [2, 16], expected [1000000000000, 16]",
}


@pytest.mark.parametrize("key", SIZES)
def test_huge_sizes_are_refused_before_anything_has_them(key, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    outside.write_config(place / "config.json", outside.huggingface_config() | {key: HUGE})
    assert SIZES[key] in refused(place)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (1, "bert.encoder.layer.1.attention.output.LayerNorm.bias [16] has no place in a BERT"),
        (3, "bert.encoder.layer.2.attention.self.query.weight is missing, expected [16, 16]"),
    ],
)
def test_other_numbers_of_layers_are_refused(layers, expected, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    values = outside.huggingface_config() | {"num_hidden_layers": layers}
    outside.write_config(place / "config.json", values)
    assert f"{expected} (and 15 more tensors)" in refused(place)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "[" * 100000, '{"model_type": "b\xff"}'])
def test_what_is_not_a_json_object_is_refused(text, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    (place / "config.json").write_bytes(text.encode("latin-1"))
    assert refused(place).startswith(f"{place / 'config.json'}: ")


# --- The tokenizer --------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [outside.PIECES[:-1], [*outside.PIECES, "one more"]])
def test_vocabularies_of_another_size_are_refused(pieces, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    outside.write_vocabulary(place, pieces)
    expected = f"the tokenizer has {len(pieces)} pieces, {WORDS} is [{ROWS}, 16]"
    assert expected in refused(place)


def test_tokenizer_json_counts_before_vocab_txt(made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    write_tokenizer(place)
    assert not open_directory(place).tokenizer.model.lowercase
    outside.write_vocabulary(place, [*outside.PIECES[:-1], "else"])
    assert f"vocab.txt: not the vocabulary of {place / 'tokenizer.json'}" in refused(place)


def far(document):
    document["model"]["vocab"]["far"] = 2**32 - 1


TOKENIZERS = {
    "not JSON": "{",
    "nested": "[" * 100000,
    "a list": "[]",
    "no model": "{}",
    "no vocabulary": lambda d: d["model"].pop("vocab"),
    "vocabulary of text": lambda d: d["model"].update(vocab={"a": "b"}),
    "a far id": far,
    "added numbers": lambda d: d.update(added_tokens=[1]),
    "added without id": lambda d: d.update(added_tokens=[{"content": "a"}]),
    "added is a number": lambda d: d.update(added_tokens=7),
    "normalizer": lambda d: d.update(normalizer="lower"),
    "pre-tokenizer": lambda d: d.update(pre_tokenizer={"type": "none"}),
    "model is a list": lambda d: d.update(model=[]),
}


@pytest.mark.parametrize("damage", TOKENIZERS)
def test_damaged_tokenizers_are_refused(damage, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    change = TOKENIZERS[damage]
    if isinstance(change, str):
        (place / "tokenizer.json").write_text(change)
    else:
        write_tokenizer(place, change)
    assert refused(place).startswith(str(place))


@pytest.mark.parametrize(
    "key", ["continuing_subword_prefix", "max_input_chars_per_word", "unk_token"]
)
def test_rules_that_a_tokenizer_leaves_out(key, made, tmp_path):
    """The library has defaults for some of them: whatever comes in has the ids of the library."""
    place = outside.copy(made, tmp_path / "model")
    write_tokenizer(place, lambda document: document["model"].pop(key))
    try:
        found = load_model.read_source(place).tokenizer
    except BadInput as error:
        assert "tokenizer.json" in str(error)
    else:
        assert found.encode(["unable"]) == [[outside.PIECES.index(p) for p in ("un", "##able")]]


def test_a_case_that_two_files_disagree_on(made, tmp_path):
    """transformers would follow tokenizer_config.json."""
    place = outside.copy(made, tmp_path / "model")
    write_tokenizer(place)
    (place / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert "do_lower_case is True, tokenizer.json has lowercase False" in refused(place)
    (place / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not open_directory(place).tokenizer.model.lowercase


def test_without_any_tokenizer_it_is_refused(made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    (place / "vocab.txt").unlink()
    assert "neither tokenizer.json nor vocab.txt" in refused(place)
