"""Models of others at the door: what is right comes in bit for bit, what is not is refused in one line."""

import json
import struct

import ml_dtypes
import numpy as np
import outside
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax import trained
from bert_jax.convert import names
from bert_jax.errors import BadInput
from bert_jax.tokenizers.wordpiece import WordPiece

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
WORDS = "bert.embeddings.word_embeddings.weight"
UP = "bert.encoder.layer.1.intermediate.dense.weight"
BIAS, DECODER = "cls.predictions.bias", "cls.predictions.decoder"
ROWS = len(outside.PIECES)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return outside.write_huggingface(tmp_path_factory.mktemp("huggingface") / "model")


def open_directory(directory) -> trained.Trained:
    return trained.open_source(trained.read_source(directory), None, ["dtype=float32"])


def refused(directory) -> str:
    with pytest.raises(BadInput) as caught:
        open_directory(directory)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 700
    return line


def leaf(params, path: str) -> np.ndarray:
    for key in path.split("/"):
        params = params[key]
    return np.asarray(params)


def check_same(params, tensors: dict, parts=outside.PARTS) -> None:
    """Bit for bit, kernels turned, and zeros where the vocabulary is padded."""
    for item in names.parameters(outside.SIZES["layers"]):
        if item.part in parts:
            theirs = np.asarray(tensors[item.huggingface], np.float32)
            ours = leaf(params, item.path)
            ours = ours.T if "huggingface" in item.transposed else ours
            assert ours[: len(theirs)].tobytes() == theirs.tobytes(), item.path
            assert item.padded or len(ours) == len(theirs)
            assert not ours[len(theirs) :].any()


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


def split(place) -> dict:
    """One file becomes two and an index; returns the index."""
    tensors = load_file(place / WEIGHTS)
    (place / WEIGHTS).unlink()
    shards = {}
    for number, name in enumerate(sorted(tensors)):
        shards.setdefault(f"model-0000{number % 2 + 1}-of-00002.safetensors", []).append(name)
    for file, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, place / file)
    index = {"metadata": {"total_size": 0}}
    index["weight_map"] = {name: file for file, inside in shards.items() for name in inside}
    (place / INDEX).write_text(json.dumps(index))
    return index


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


# --- Files ----------------------------------------------------------------------------------------


def parts(place) -> tuple[dict, bytes]:
    """The header of a safetensors file, and its data."""
    content = (place / WEIGHTS).read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8:end]), content[end:]


def put(place, header: bytes, data: bytes, length: int | None = None) -> None:
    length = len(header) if length is None else length
    (place / WEIGHTS).write_bytes(struct.pack("<Q", length) + header + data)


def change_header(change):
    def damage(place):
        header, data = parts(place)
        change(header)
        put(place, json.dumps(header).encode(), data)

    return damage


def overlap(header):
    header[UP]["data_offsets"] = header["bert.encoder.layer.0.intermediate.dense.weight"][
        "data_offsets"
    ]


def beyond(header):
    last = max(
        (v for k, v in header.items() if k != "__metadata__"), key=lambda v: v["data_offsets"]
    )
    last["data_offsets"] = [10**15, 10**15 + 64]


def huge(header):
    header[UP]["shape"] = [2**62, 2**62]


def duplicate(place):
    header, data = parts(place)
    text = json.dumps(header)
    put(place, text.replace("layer.1.", "layer.0.").encode(), data)


def cut(end):
    def damage(place):
        path = place / WEIGHTS
        path.write_bytes(path.read_bytes()[:end])

    return damage


def resized(length):
    def damage(place):
        header, data = parts(place)
        put(place, json.dumps(header).encode(), data, length)

    return damage


def add(place, content):
    with open(place / WEIGHTS, "ab") as file:
        file.write(content)


FILES = {
    "empty": cut(0),
    "header cut": cut(100),
    "length cut": cut(5),
    "data cut": cut(-1),
    "data much cut": cut(-20000),
    "data too long": lambda place: add(place, b"abcd"),
    "length of all ones": resized(2**64 - 1),
    "length beyond the file": resized(10**6),
    "length too small": resized(10),
    "length of nothing": resized(0),
    "not JSON": lambda place: put(place, b"}" * 100, parts(place)[1]),
    "a list": lambda place: put(place, b"[1, 2]", parts(place)[1]),
    "nested": lambda place: put(place, b"[" * 100000, b""),
    "not UTF-8": lambda place: put(place, b"\xff" * 100, parts(place)[1]),
    "overlapping": change_header(overlap),
    "offsets beyond": change_header(beyond),
    "huge": change_header(huge),
    "negative": change_header(lambda h: h[UP].update(shape=[-1, 16])),
    "unknown type": change_header(lambda h: h[UP].update(dtype="F7")),
    "no type": change_header(lambda h: h[UP].pop("dtype")),
    "the same name twice": duplicate,
}


@pytest.mark.parametrize("damage", FILES)
def test_damaged_files_are_refused(damage, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    FILES[damage](place)
    assert refused(place).startswith(f"{place / WEIGHTS}: not a whole safetensors file (")


def reindex(change):
    def damage(place):
        index = split(place)
        change(index["weight_map"])
        (place / INDEX).write_text(json.dumps(index))

    return damage


def drop_shard(place):
    split(place)
    (place / "model-00002-of-00002.safetensors").unlink()


def pickle(name):
    def damage(place):
        (place / WEIGHTS).rename(place / name)

    return damage


LEAVES = "no weight_map of tensors to files of this directory"
OTHERS = {
    "a shard is missing": (drop_shard, "model-00002-of-00002.safetensors: not a whole"),
    "up": (reindex(lambda m: m.update({UP: "../x.safetensors"})), LEAVES),
    "absolute": (reindex(lambda m: m.update({UP: "/tmp/x.safetensors"})), LEAVES),
    "not a name": (reindex(lambda m: m.update({UP: 3})), LEAVES),
    "another format": (reindex(lambda m: m.update({UP: "x.bin"})), LEAVES),
    "not in its file": (
        reindex(lambda m: m.update({UP: next(file for file in m.values() if file != m[UP])})),
        f"{UP} is missing in model-0000",
    ),
    "not in the index": (reindex(lambda m: m.pop(UP)), f"{UP} is not in the index, but in model-"),
    "in no file": (reindex(lambda m: m.update(extra=m[UP])), "extra is missing in model-"),
    "pickle": (pickle("pytorch_model.bin"), "pytorch_model.bin: a PyTorch pickle"),
    "pickles": (pickle("pytorch_model.bin.index.json"), "save_pretrained writes safetensors"),
    "no weights": (pickle("tf_model.h5"), "no model.safetensors"),
}


@pytest.mark.parametrize("damage", OTHERS)
def test_other_files_are_refused(damage, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    change, expected = OTHERS[damage]
    change(place)
    assert expected in refused(place)


def test_directories_without_a_model_are_refused(tmp_path):
    assert "no such directory" in refused(tmp_path / "nowhere")
    assert "no model: neither a run" in refused(tmp_path)


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


def write_tokenizer(place, change=lambda document: None) -> None:
    document = json.loads(WordPiece(outside.PIECES, lowercase=False).tokenizer.to_str())
    change(document)
    (place / "tokenizer.json").write_text(json.dumps(document))


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
        found = trained.read_source(place).tokenizer
    except BadInput as error:
        assert "tokenizer.json" in str(error)
    else:
        assert found.encode(["unable"]) == [[outside.PIECES.index(p) for p in ("un", "##able")]]


def test_without_any_tokenizer_it_is_refused(made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    (place / "vocab.txt").unlink()
    assert "neither tokenizer.json nor vocab.txt" in refused(place)


# --- Chance ---------------------------------------------------------------------------------------


def try_it(place, tensors) -> bool:
    """Whether it came in; then it is right."""
    try:
        model = open_directory(place)
    except BadInput as error:
        assert "\n" not in str(error)
        return False
    check_same(model.params, tensors)
    return True


def disturb(content: bytes, end: int, draw) -> bytes:
    """One to three bytes before `end` become others, or all from one on is cut."""
    if draw.random() < 0.1:
        return content[: draw.integers(0, len(content))]
    content = bytearray(content)
    for place in draw.integers(0, end, draw.integers(1, 4)):
        content[place] ^= 1 << draw.integers(0, 8)
    return bytes(content)


def test_chance_damage_to_headers(made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    content, draw = (place / WEIGHTS).read_bytes(), np.random.default_rng(0)
    end = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = outside.make_tensors()
    for _ in range(1000):
        (place / WEIGHTS).write_bytes(disturb(content, end, draw))
        try_it(place, tensors)
    (place / WEIGHTS).write_bytes(content)
    assert try_it(place, tensors)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "vocab.txt"])
def test_chance_damage_to_small_files(name, made, tmp_path):
    place = outside.copy(made, tmp_path / "model")
    write_tokenizer(place)
    content, draw = (place / name).read_bytes(), np.random.default_rng(0)
    tensors = outside.make_tensors()
    for _ in range(100):
        (place / name).write_bytes(disturb(content, len(content), draw))
        try_it(place, tensors)
    (place / name).write_bytes(content)
    assert try_it(place, tensors)
