"""Checks of commands on bad input, which must fail with one line and write nothing; damaged and intact model files."""

import contextlib
import io
import json

import numpy as np
from kits import external_models
from safetensors.numpy import load_file, save_file

from bert_jax.cli import main
from bert_jax.convert import names, open_model
from bert_jax.runs import open_run
from bert_jax.tokenizers.wordpiece import WordPiece

FORMATS = names.FORMATS
CONFIGS = {"huggingface": "config.json", "google": "bert_config.json"}
WEIGHTS = "model.safetensors"
WORDS, UP = "network/embedder/words", "network/blocks_1/feed_forward/up/kernel"


def write(form: str, directory, *arguments, **changes):
    """Writes the directory of a model in a format, by the functions of external_models.py."""
    return getattr(external_models, f"write_{form}")(directory, *arguments, **changes)


def spelled(form: str, path: str) -> str:
    """Returns the name of one of our parameters in a format."""
    table = names.parameters(external_models.SIZES)
    return next(getattr(item, form) for item in table if item.path == path)


def open_directory(directory, *overrides) -> open_run.OpenModel:
    overrides = ("dtype=float32", *overrides)
    return open_model.open_source(open_model.read_source(directory), None, overrides)


def refused(*command) -> str:
    """Runs a command that must fail with exit code 2; returns its one line on stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as output:
        assert main([str(part) for part in command]) == 2
    (line,) = output.getvalue().splitlines()
    assert line.startswith("bert-jax: ") and len(line) < 1000
    return line.removeprefix("bert-jax: ")


def refused_import(directory) -> str:
    """Imports a directory, which must fail without writing anything; returns the one line on stderr."""
    before = sorted(directory.parent.rglob("*"))
    line = refused("import", "--source", directory, "--workdir", directory.parent / "run")
    assert sorted(directory.parent.rglob("*")) == before
    return line


def leaf(params, path: str) -> np.ndarray:
    for key in path.split("/"):
        params = params[key]
    return np.asarray(params)


def check_same(
    params, tensors: dict, parts=external_models.PARTS, form: str = "huggingface"
) -> None:
    """Asserts that parameters equal tensors bitwise, with kernels transposed and zeros in the vocabulary's padding."""
    for item in names.parameters(external_models.SIZES):
        if item.part in parts:
            theirs = np.asarray(tensors[getattr(item, form)], np.float32)
            ours = leaf(params, item.path)
            ours = ours.T if form in item.transposed else ours
            assert ours[: len(theirs)].tobytes() == theirs.tobytes(), item.path
            assert item.padded or len(ours) == len(theirs)
            assert not ours[len(theirs) :].any()


def split(directory) -> None:
    """Splits the weights of a directory into two files."""
    tensors = load_file(directory / WEIGHTS)
    (directory / WEIGHTS).unlink()
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    files = {name: shards[number % 2] for number, name in enumerate(sorted(tensors))}
    for shard in shards:
        arrays = {name: tensors[name] for name in files if files[name] == shard}
        save_file(arrays, directory / shard)


def write_tokenizer(directory, change=lambda document: None) -> None:
    document = json.loads(WordPiece(external_models.PIECES, lowercase=False).tokenizer.to_str())
    change(document)
    (directory / "tokenizer.json").write_text(json.dumps(document))
