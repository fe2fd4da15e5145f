"""What the tests of the door share: opening a directory of others, and what must be said or come of it."""

import json

import numpy as np
import pytest
from kits import outside
from safetensors.numpy import load_file, save_file

from bert_jax.commands import load_model
from bert_jax.convert import names
from bert_jax.errors import BadInput
from bert_jax.tokenizers.wordpiece import WordPiece

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
WORDS = "bert.embeddings.word_embeddings.weight"
UP = "bert.encoder.layer.1.intermediate.dense.weight"
BIAS, DECODER = "cls.predictions.bias", "cls.predictions.decoder"
ROWS = len(outside.PIECES)


def open_directory(directory) -> load_model.Trained:
    return load_model.open_source(load_model.read_source(directory), None, ["dtype=float32"])


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


def write_tokenizer(place, change=lambda document: None) -> None:
    document = json.loads(WordPiece(outside.PIECES, lowercase=False).tokenizer.to_str())
    change(document)
    (place / "tokenizer.json").write_text(json.dumps(document))
