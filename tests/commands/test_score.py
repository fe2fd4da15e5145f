"""`score`: accuracy on minimal pairs, by group and with ties, and the sentences of a file; bad input."""

import json
from argparse import Namespace

import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.runs import make_run

from bert_jax.cli import main
from bert_jax.commands import score
from bert_jax.data.sources import tables
from bert_jax.inference import minimal_pairs

PAIRS = [
    {"sentence_good": "The dog sleeps.", "sentence_bad": "The dog sleep.", "UID": "a", "field": 1},
    {"sentence_good": "The dogs sleep.", "sentence_bad": "The dogs sleeps.", "UID": "b"},
    {"sentence_good": "The same.", "sentence_bad": "The same.", "UID": "b", "field": 1},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("score") / "run"
    make_run(directory, "objective.name=causal_lm", "task.name=token_blocks")
    return directory


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_accuracy_by_group_with_ties_as_halves():
    good = np.array([-1.0, -2.0, -3.0, -4.0, -5.0])
    bad = np.array([-2.0, -1.0, -3.0, -4.0 + 1e-6, -9.0])
    result = minimal_pairs.measure(good, bad, {"UID": ["x", "x", "x", "y", "y"]})
    assert result["accuracy"] == 3 / 5 and result["ties"] == 2 and result["pairs"] == 5
    error = np.sqrt((2 * 0.4**2 + 0.6**2 + 2 * 0.1**2) / 5 / 5)
    assert result["standard_error"] == pytest.approx(error)
    assert {name: line["accuracy"] for name, line in result["by"]["UID"].items()} == {
        "x": 0.5,
        "y": 0.75,
    }
    same = minimal_pairs.measure(good, good, {})
    assert same["accuracy"] == 0.5 and same["ties"] == 5 and same["standard_error"] == 0
    table = minimal_pairs.describe(result).splitlines()
    assert table[1].split() == ["all", "0.6000", f"{error:.4f}", "2", "5"]
    assert [line.split()[:2] for line in table[2:]] == [["UID", "x"], ["UID", "y"]]


@pytest.mark.slow
def test_pairs_and_sentences_have_the_same_scores(run, tmp_path, capsys):
    write(tmp_path / "pairs.jsonl", PAIRS)
    command = ["score", "--model", str(run), "--json", "-", "--input"]
    assert main([*command, str(tmp_path / "pairs.jsonl")]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["pairs"] == 3 and values["ties"] == 1
    assert {key: list(lines) for key, lines in values["by"].items()} == {
        "field": ["", "1"],
        "UID": ["a", "b"],
    }
    assert values["by"]["UID"]["b"]["ties"] == 1

    other = [{"yes": pair["sentence_good"], "no": pair["sentence_bad"], "k": 1} for pair in PAIRS]
    write(tmp_path / "other.jsonl", other)
    keys = ["--good", "yes", "--bad", "no", "--by", "k"]
    assert main([*command, str(tmp_path / "other.jsonl"), *keys]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["scores"] == values["scores"] and list(again["by"]) == ["k"]

    sentences = [
        sentence for pair in PAIRS for sentence in (pair["sentence_good"], pair["sentence_bad"])
    ]
    (tmp_path / "lines.txt").write_text("\n".join(sentences))
    write(tmp_path / "lines.jsonl", [{"text": sentence} for sentence in sentences])
    for name in ("lines.txt", "lines.jsonl"):
        assert main([*command, str(tmp_path / name)]) == 0
        lines = json.loads(capsys.readouterr().out)["sentences"]
        assert [line["text"] for line in lines] == sentences
        scores = [line["log_probability"] for line in lines]
        assert np.reshape(scores, (3, 2)).tolist() == values["scores"]


@pytest.mark.slow
def test_a_sentence_is_a_line_whatever_it_contains(run, tmp_path, capsys):
    """The token in front of each is named."""
    texts = ["a\nb", "c\td", "e\r\nf", "g\u2028h\x85i", "j  k"]
    write(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    assert main(["score", "--model", str(run), "--input", str(tmp_path / "a.jsonl")]) == 0
    printed = capsys.readouterr()
    lines = [line.split("\t")[1] for line in printed.out.splitlines()]
    assert lines == ["a b", "c d", "e f", "g h i", "j  k"]
    assert "[SEP]" in printed.err


@pytest.mark.parametrize(
    "name, content, named",
    [
        (
            "a.jsonl",
            '{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "a"}',
            ":2: sen",
        ),
        ("a.jsonl", '{"sentence_good": "a"}', "sentence_bad"),
        ("a.jsonl", '{"other": "a"}', "sentence_good"),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": ["b"]}', "row 1: "),
        ("a.jsonl", '{"sentence_good": "a"\n', ":1: "),
        ("a.tsv", "sentence_good\tsentence_bad\na\tb\na\n", ":3: "),
        ("a.txt", "a\n\nb\n", ":2: no sentence"),
        ("a.txt", "a\n" + "a " * 40, ":2: 40 tokens"),
        ("a.txt", "", "no rows"),
        ("a.jsonl", "", "has none"),
    ],
)
def test_bad_input_is_named(run, tmp_path, name, content, named):
    (tmp_path / name).write_text(content)
    line = refused("score", "--model", run, "--input", tmp_path / name)
    assert f"{tmp_path}/{name}" in line and named in line


@pytest.mark.parametrize(
    "name, options",
    [
        ("a.txt", ["--text", "text"]),
        ("a.txt", ["--by", "UID"]),
        ("a.txt", ["--good", "x"]),
        ("text.jsonl", ["--good", "x"]),
        ("text.jsonl", ["--text", "nothing"]),
        ("text.jsonl", ["--text", "other", "--bad", "x"]),
        ("text.jsonl", ["--masking", "token"]),  # the model is causal
    ],
)
def test_an_option_that_does_not_apply_is_refused(run, tmp_path, name, options):
    write(tmp_path / name, [{"text": "a", "other": "b"}])
    line = refused("score", "--model", run, "--input", tmp_path / name, *options)
    assert line.startswith(f"{options[-2]}: ") or f"no columns named {options[-1]!r}" in line


@pytest.mark.parametrize("name", ["A.JSONL", "a.jsonl"])
def test_a_table_is_known_by_its_name_and_read_once(tmp_path, monkeypatch, name):
    path = write(tmp_path / name, PAIRS)
    parts = []
    read_text = tables.read_text
    monkeypatch.setattr(tables, "read_text", lambda path: parts.append(path) or read_text(path))
    options = Namespace(input=path, good=None, bad=None, by=None, text=None)
    texts, locations, groups = score.read(options)
    assert groups == {"field": ["1", "", "1"], "UID": [*"abb"]}
    assert texts[2:4] == ["The dogs sleep.", "The dogs sleeps."]
    assert locations[2:4] == [f"{path}:2: sentence_good", f"{path}:2: sentence_bad"]
    assert parts == [path]
    options.input = path = path.rename(tmp_path / f"{name}.txt")
    texts, locations, groups = score.read(options)
    assert groups is None and json.loads(texts[0]) == PAIRS[0]
    assert locations[0] == f"{path}:1"


def test_a_model_that_is_no_language_model_is_refused(tmp_path):
    changes = ["objective.name=classifier", "task.name=classification", "task.labels=('0', '1')"]
    make_run(tmp_path / "run", *changes)
    (tmp_path / "a.txt").write_text("a\n")
    line = refused("score", "--model", tmp_path / "run", "--input", tmp_path / "a.txt")
    assert "objective 'classifier'" in line
