"""Tables of texts and labels: every format gives the same rows."""

import json

import pyarrow
import pytest
from pyarrow import csv, parquet

from bert_jax.data import tables
from bert_jax.errors import BadInput

ROWS = [['a quote " and a comma,', "yes"], ["ünïcode  two spaces", "no"], ["NA", "1"], ["", "2"]]


def write(path, rows=ROWS):
    columns = dict(zip(("text", "label"), map(list, zip(*rows, strict=True)), strict=True))
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(text=a, label=b)) + "\n" for a, b in rows))
    elif path.suffix == ".csv":
        csv.write_csv(pyarrow.table(columns), path)
    else:
        path.write_text("".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *rows]))
    return path


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.jsonl", "t.parquet"])
def test_all_formats_have_the_same_rows(tmp_path, name):
    path = write(tmp_path / name)
    assert [row for _, row in tables.read(path, ["text", "label"])] == ROWS
    found = tables.read(path, ["label", "none"], optional="none")
    assert [row for _, row in found] == [[label, None] for _, label in ROWS]
    with pytest.raises(BadInput, match=rf"{path}: no column 'none'.*text, label"):
        tables.read(path, ["none"])


def test_a_file_without_a_header_has_numbered_columns(tmp_path):
    path = write(tmp_path / "t.tsv")
    assert tables.read(path, ["1"])[:2] == [(f"{path}:1", ["label"]), (f"{path}:2", ["yes"])]


def test_nulls_numbers_and_lists(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": null, "b": ["x", "y"], "c": 1}\n{"a": "z", "b": [], "c": 2}\n')
    found = [row for _, row in tables.read(path, ["a", "b", "c"])]
    assert found == [["", ["x", "y"], "1"], ["z", [], "2"]]


@pytest.mark.parametrize(
    "name, text, named",
    [
        ("t.tsv", "a\tb\n1\t2\n3\n", "t.tsv: cannot"),
        ("t.tsv", "a\tb\n" + 200 * "1\t2\n" + "3\n", "t.tsv: cannot"),  # it has no labels
        ("t.jsonl", '{"a": 1}\n\n{', "t.jsonl:3:"),
        ("t.jsonl", "[1]", "t.jsonl:1:"),
        ("t.parquet", "x", "t.parquet: cannot"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, text, named):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=named):
        tables.read(tmp_path / name, ["a", "label"], optional="label")


def test_empty_lines_are_rows(tmp_path):
    """So that predictions, and the lines in messages, are counted like those of the file."""
    (tmp_path / "t.tsv").write_text("text\na\n\nb\n")
    found = tables.read(tmp_path / "t.tsv", ["text", "label"], optional="label")
    assert found == [(f"{tmp_path}/t.tsv:{n}", [x, None]) for n, x in ((2, "a"), (3, ""), (4, "b"))]
