"""What fuzzing has found at the doors, each once and by hand: refused in one line."""

import json
import os
import re

import pytest
from kits import runs
from kits.small import SMALL, overrides, write_corpus
from kits.texts import PROSE

from bert_jax import config
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.storage import regular_files
from bert_jax.tokenizers import tokenizer


def refused(capsys, *command) -> str:
    assert main([str(part) for part in command]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("bert-jax: ") and len(line) < 1000
    return line


def settings(directory, **changes) -> list[str]:
    places = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    return [f"--config.{key}" for key in overrides(SMALL | places | changes)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bands", [[1.5, 2]]),
        ("bands", [1, float("nan"), 2]),
        ("bands", [10**400, 1, 2]),
        ("optimizer", {"learning_rate": 10**400}),
        ("phase_order", [["main"]]),
        ("phases", {"main": {"a.b": 1}}),
        ("phases", []),
    ],
)
def test_configs_of_odd_values(tmp_path, capsys, key, value):
    values = config.load("demo").to_dict() | {key: value}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    line = refused(capsys, "config", "--config", path)
    assert key in line.replace(str(path), "")


def test_a_config_nested_too_deep(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    assert str(path) in refused(capsys, "config", "--config", path)


def test_a_config_that_holds_itself(tmp_path, capsys):
    path = tmp_path / "mine.py"
    lines = "import ml_collections", "def get_config():", "    c = ml_collections.ConfigDict()"
    path.write_text("\n".join([*lines, "    c.model = c", "    return c"]))
    assert "RecursionError" in refused(capsys, "config", "--config", path)


def test_a_model_whose_pieces_are_not_utf_8(tmp_path):
    words = tokenizer.train("unigram", PROSE, 200, True)
    words.save(tmp_path)
    path = tmp_path / "sentencepiece.model"
    path.write_bytes(path.read_bytes().replace("▁the".encode(), b"\xe2\x96the"))
    with pytest.raises(BadInput, match="not a SentencePiece model"):
        tokenizer.given(path, True)


def test_an_error_of_a_config_is_short(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("def get_config():\n    raise ValueError('x' * 10_000)\n")
    assert "mine.py:2: ValueError" in refused(capsys, "config", "--config", path)


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "a.model", "tokenizer.json"])
def test_pipes_are_not_waited_for(tmp_path, capsys, name):
    write_corpus(tmp_path / "corpus.txt", documents=10)
    os.mkfifo(tmp_path / name)
    if name == "config.json":
        line = refused(capsys, "config", "--config", tmp_path / name)
    else:
        keys = settings(tmp_path, **{"tokenizer.path": tmp_path / name})
        line = refused(capsys, "prepare", "--config", "demo", *keys)
    assert name in line and "not a regular file" in line
    assert not (tmp_path / "store").exists()


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "loop", "nowhere", "."):
        with pytest.raises(OSError):
            regular_files.text(tmp_path / name)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=40)
    keys = settings(directory)
    saving = ["--steps", "0:2", "--save", str(directory / "saved")]
    assert main(["inspect", "--config", "demo", *keys, *saving]) == 0
    return directory


def flip_last(path) -> bytes:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return content


@pytest.mark.parametrize("name", ["train/tokens.npy", "unigrams.npy"])
def test_inspect_looks_at_the_hashes_of_a_store(world, capsys, name):
    path = world / "store" / name
    content = flip_last(path)
    try:
        keys = settings(world)
        line = refused(capsys, "inspect", "--config", "demo", *keys, "--step", 0)
        assert f"{path}: altered" in line
    finally:
        path.write_bytes(content)


def test_inspect_looks_at_the_hashes_of_batches(world, capsys):
    (path,) = (world / "saved" / "train").glob("*.npy")
    content = flip_last(path)
    try:
        keys = settings(world, batches=world / "saved")
        line = refused(capsys, "inspect", "--config", "demo", *keys, "--step", 0)
        assert f"{path}: altered" in line
    finally:
        path.write_bytes(content)


def test_an_array_with_another_header(world, capsys):
    """Where nobody looks at hashes."""
    path = world / "store" / "unigrams.npy"
    content = path.read_bytes()
    altered = content.replace(b"'<i8'", b"'|O' ", 1)
    assert altered != content and len(altered) == len(content)
    path.write_bytes(altered)
    try:
        keys = settings(world, store_hashes=False)
        assert str(path) in refused(capsys, "prepare", "--config", "demo", *keys)
    finally:
        path.write_bytes(content)


def test_a_header_that_numpy_has_to_guess_at(world, capsys):
    """Of Python 2, by a bit: NumPy reads it, with a warning of several lines."""
    path = world / "store" / "heldout" / "tokens.npy"
    content = path.read_bytes()
    altered = re.sub(rb"\((\d+),\), } {2}", rb"(\1L,), } ", content, count=1)
    assert altered != content and len(altered) == len(content)
    path.write_bytes(altered)
    try:
        assert main(["verify", "--store", str(world / "store")]) == 1
        told = capsys.readouterr()
        assert "heldout/tokens.npy: no readable" in told.out and not told.err
        keys = settings(world, store_hashes=False)
        line = refused(capsys, "inspect", "--config", "demo", *keys, "--step", 0)
        assert f"{path}: cannot be read" in line
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("run.json", {"devices": [{"a": 1}]}),
        ("run.json", {"devices": None}),
        ("run.json", {"versions": ["x"]}),
        ("run.json", {"unigram_entropy": "3.5"}),
        ("run.json", {"imported": [1]}),
        ("run.json", {"imported": {"source": None}}),
        ("metrics.jsonl", {"step": 1, "split": "train"}),
        ("metrics.jsonl", {"step": "1", "split": "heldout"}),
    ],
)
def test_a_card_of_odd_facts(tmp_path, capsys, name, values):
    runs.make_run(tmp_path / "run")
    path = tmp_path / "run" / name
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(before | values) + "\n")
    places = "--workdir", tmp_path / "run", "--output", tmp_path / "out"
    assert f"{path}: {'line 1' if not before else [*values][0]}" in refused(
        capsys, "export", *places
    )
    assert not (tmp_path / "out").exists()


def test_texts_that_are_not_utf_8(tmp_path, capsys):
    from kits import outside

    place = outside.write_huggingface(tmp_path / "model")
    line = refused(capsys, "predict", "--model", place, "the [MASK] \udcff")
    assert "not UTF-8" in line


def test_what_is_said_of_a_very_long_value(capsys):
    line = refused(capsys, "config", "--config", "demo", f"--config.dtype=b{'[' * 5000}oat32")
    assert line.startswith("bert-jax: config.dtype='b[[[") and "[[ ... [[" in line
