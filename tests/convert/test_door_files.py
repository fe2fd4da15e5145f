"""Files at the door, damaged on purpose and by chance: each is refused in one line."""

import json
import struct

import numpy as np
import pytest
from kits import outside
from kits.doors import (
    INDEX,
    UP,
    WEIGHTS,
    check_same,
    open_directory,
    refused,
    split,
    write_tokenizer,
)

from bert_jax.errors import BadInput


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return outside.write_huggingface(tmp_path_factory.mktemp("huggingface") / "model")


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
    assert "not a directory" in refused(tmp_path / "nowhere")
    assert "no model: neither a run" in refused(tmp_path)


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
