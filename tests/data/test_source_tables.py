"""Tables of texts and labels: every format gives the same rows."""

import json

import pyarrow
import pytest
from pyarrow import csv, parquet

from bert_jax.data.sources import tables
from bert_jax.errors import BadInput

ROWS = [['a quote " and a comma,', "yes"], ["ünïcode  two spaces", "no"], ["NA", "1"], ["", "2"]]


def write(path, rows=ROWS):
    columns = dict(zip(("text", "label"), map(list, zip(*rows, strict=True)), strict=True))
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(text=a, label=b)) + "\n" for a, b in rows))
    elif path.suffix.lower() == ".csv":
        csv.write_csv(pyarrow.table(columns), path)
    else:
        path.write_text("".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *rows]))
    return path


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.jsonl", "t.parquet", "t.CSV"])
def test_columns_are_chosen_in_all_formats(tmp_path, name):
    path = write(tmp_path / name)
    found = tables.read(path, ["label", "none"], optional="none")
    assert [row for _, row in found] == [[label, None] for _, label in ROWS]
    with pytest.raises(BadInput, match=rf"{path}: .*'none'.*'text', 'label'"):
        tables.read(path, ["none"])


def test_a_file_without_a_header_has_numbered_columns(tmp_path):
    path = write(tmp_path / "t.tsv")
    assert tables.read(path, ["1"])[:2] == [(f"{path}:1", ["label"]), (f"{path}:2", ["yes"])]
    with pytest.raises(BadInput, match="no columns named '0'.*'text', 'label'.*header"):
        tables.read(path, ["0", "label"])


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_an_empty_first_line_is_no_header(tmp_path, name):
    mark = "\t" if name == "t.tsv" else ","
    (tmp_path / name).write_text(f"\n\na{mark}b\nx{mark}y\n")
    assert tables.read(tmp_path / name, ["b"]) == [(f"{tmp_path}/{name}:4", ["y"])]
    numbered = tables.read(tmp_path / name, ["1"], optional="1")
    assert [values for _, values in numbered] == [[None], [None], ["b"], ["y"]]


def values(path, *columns, label="label"):
    return [row for _, row in tables.read(path, [*columns, label], optional=label)]


@pytest.mark.parametrize(
    "header, row", [("0,1", "a,x"), (",0,1", "5,a,x"), ("id,0,1", "5,a,x"), ("\ufeff0,1", "a,x")]
)
def test_a_header_of_numbers_is_no_row(tmp_path, header, row):
    (tmp_path / "t.csv").write_text(f"{header}\n{row}\n")
    assert values(tmp_path / "t.csv", "0", label="1") == [["a", "x"]]
    (tmp_path / "t.csv").write_text(f"{row}\n{row}\n")
    assert len(values(tmp_path / "t.csv", "0", label="1")) == 2


def test_nulls_numbers_and_lists(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": null, "label": ["x", 2], "c": 1}\n{"a": NaN, "label": NaN, "c": true}\n')
    assert values(path, "a", "c") == [["", "1", ["x", "2"]], ["", "True", None]]
    columns = {"a": ["x", None], "label": [[b"a"], None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    assert values(tmp_path / "t.parquet", "a") == [["x", ["a"]], ["", None]]


OBJECTS = [{"text": "a", "label": "x"}, {"text": "b", "label": ["y"]}]
COLUMNS = {"text": ["a", "b"], "label": ["x", ["y"]]}
INDEXED = {name: {"7": values[0], "3": values[1]} for name, values in COLUMNS.items()}  # pandas'


@pytest.mark.parametrize(
    "text",
    [
        *(
            json.dumps(document, indent=n)
            for document in (OBJECTS, COLUMNS, INDEXED)
            for n in (None, 1)
        ),
        "\n".join([*map(json.dumps, OBJECTS), "", " "]),
    ],
)
def test_json_has_rows_or_columns(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    assert values(tmp_path / "t.json", "text") == [["a", "x"], ["b", ["y"]]]


@pytest.mark.parametrize(
    "text",
    [
        '["ab", "cd"]',  # dict() accepts pairs
        '[["ab", "cd"]]',
        '{"text": {"en": "a"}, "label": "x"}',
        '{"text": {"0": "a", "1": "b"}, "label": {"1": "x", "0": "y"}}',  # of several orders
        '{"text": "a", "label": ["x", NaN]}',
        '{"text": ["a", "b"], "label": "x"}',
        '{"text": ["a", "b"], "label": ["x"]}',
        '{"text": "a", "label": [["x"]]}',
        '{"text": "a", "label": ["x", null]}',
        '{"text": "a", "label": {"name": "x"}}',
        "3",
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("before", ["", '{"text": "a", "label": "x"}\n\n'])
def test_what_is_no_text_is_refused_by_line(tmp_path, before, text):
    (tmp_path / "t.jsonl").write_text(before + text)
    with pytest.raises(BadInput, match="jsonl:3: " if before else r"jsonl(:1|, row 1): "):
        tables.read(tmp_path / "t.jsonl", ["text", "label"], optional="label")


@pytest.mark.parametrize(
    "name, text, named",
    [
        ("t.csv", 'a\n"x\ny"\n"z', "t.csv:4:"),
        ("t.csv", "a,label,a\n1,2,3\n", "'a'"),
        ("t.tsv", "a\tlabel\n1\t2\n\udcff", "t.tsv:3:"),
        ("t.jsonl", '{"a": 1}\n\n{', "t.jsonl:3:"),
        ("t.jsonl", "[1]", "t.jsonl, row 1:"),
        ("t.csv", "A,label\n1,2\n", "'a'.*'A'"),
        ("t.parquet", "x", "t.parquet: damaged"),
        ("t.csv.gz", "x", "t.csv.gz: damaged"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, text, named):
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match=named):
        tables.read(tmp_path / name, ["a", "label"], optional="label")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_every_line_is_a_row(tmp_path, ends):
    """So that predictions, and the lines in messages, are counted like those of the file: also an empty one, but at
    the end, and one with other columns."""
    path = tmp_path / "t.tsv"
    path.write_text(ends.join(["text\tlabel", "a\tx", "", '"b\tx', "c", "", "", ""]), newline="")
    found = tables.read(path, ["text", "label"], optional="label")
    rows = [["a", "x"], ["", None], ['"b', "x"], [None]]
    assert found == [(f"{path}:{line}", row) for line, row in enumerate(rows, 2)]
    path = tmp_path / "t.jsonl"
    path.write_text(ends.join(['{"text": "a"}', "", " ", '{"text": "b"}', "", ""]), newline="")
    assert values(path, "text") == [["a", None], ["", None], ["", None], ["b", None]]
    path = tmp_path / "t.csv"
    path.write_text('text\n"a\nb"\n\nc\n""\n\n')
    assert tables.read(path, ["text"]) == [
        (f"{path}:{line}", [text]) for line, text in ((2, "a\nb"), (4, ""), (5, "c"), (6, ""))
    ]


@pytest.mark.parametrize(
    ("name", "last"), [("t.tsv", "\u200b"), ("t.csv", '" "'), ("t.csv", '"\u200b"')]
)
def test_a_last_row_without_visible_text_is_a_row(tmp_path, name, last):
    (tmp_path / name).write_text(f"text\na\n{last}\n{last}\n \n\n")
    assert [row for _, row in tables.read(tmp_path / name, ["text"])] == [["a"], [""], [""]]


def test_a_carriage_return_alone_ends_no_row(tmp_path):
    """It is text, as in parallel files; in CSV with and without quotes."""
    path = tmp_path / "t.tsv"
    path.write_bytes(b"text\tlabel\r\na\rb\tx\r\n\rc\td\r\r\n")
    assert values(path, "text") == [["a\rb", "x"], ["\rc", "d"]]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"text":\r"a", "label": "x"}\n')
    assert values(path, "text") == [["a", "x"]]
    path = tmp_path / "t.csv"
    path.write_bytes(b'text,label\n"a\rb",x\na\rb,\r\r\n')
    assert values(path, "text") == [["a\rb", "x"], ["a\rb", ""]]


@pytest.mark.parametrize(
    "name, content, kind",
    [
        ("t.tmx", b'\xef\xbb\xbf<?xml version="1.0"?>\n<!DOCTYPE tmx>\n<tmx version="1.4">', "TMX"),
        ("train.txt", b"<xliff>", "XLIFF"),
        ("t.xlsx", b"PK\x03\x04\x14\x00", "Excel"),
        ("t.tmx", b"<!DOCTYPE tmx [\n<!ELEMENT tmx (body)>\n]>\n<tmx>", "TMX"),
        ("t.tsv", "\ufefftext\n".encode("utf-16-le"), "UTF-16"),
        ("t.tsv", "text\n".encode("utf-16-le"), "UTF-16"),
        ("t.csv", "text\n".encode("utf-16-be"), "UTF-16"),
        ("t.tsv", b"PAR1\x15\x00", "Parquet file of"),
        ("t.tsv", b"%PDF-1.7\n", "PDF"),
        ("t.tsv", b"\x1f\x8b\x08", "compressed"),
        ("t.tsv", b"BZh91AY&SY", "compressed"),
        ("t.tsv", b"\xfd7zXZ\0", "compressed"),
        ("t.tsv", b"\x28\xb5\x2f\xfd", "compressed"),
    ],
)
def test_other_formats_are_named(tmp_path, name, content, kind):
    (tmp_path / name).write_bytes(content)
    for read in (tables.read_lines, lambda path: tables.read(path, ["text"])):
        with pytest.raises(BadInput, match=f"{tmp_path}/{name}: .*{kind}"):
            read(tmp_path / name)


def test_lone_surrogates_of_json_become_replacement_characters(tmp_path):
    """In texts, labels and names of columns."""
    path = tmp_path / "t.jsonl"
    row = {"text": "a\ud83d \ud83d\ude00", "label": "\udc00"}
    path.write_text(
        "\n".join(json.dumps(each) for each in (row, {"text": "b\\ud83d", "label": "c"}))
    )
    found = [row for _, row in tables.read(path, ["text", "label"], optional="label")]
    assert found == [["a\ufffd \U0001f600", "\ufffd"], ["b\\ud83d", "c"]]


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
@pytest.mark.parametrize(
    ("name", "header", "rows"),
    [
        ("t.jsonl", b"", [b'{"text": "a", "label": "x"}', b'{"text": "b", "label": "y"}']),
        ("t.csv", b"text,label", [b"a,x", b"b,y"]),
        ("t.tsv", b"text\tlabel", [b"a\tx", b"b\ty"]),
    ],
)
def test_files_with_marks_and_any_ends_of_lines(tmp_path, name, header, rows, end):
    mark = b"\xef\xbb\xbf"
    lines = [mark + header, *rows] if header else [mark + row for row in rows]
    (tmp_path / name).write_bytes(end.join(lines) + end)
    found = [row for _, row in tables.read(tmp_path / name, ["text", "label"], optional="label")]
    assert found == [["a", "x"], ["b", "y"]]


def test_text_of_a_parquet_file_that_is_not_utf8_is_refused(tmp_path):
    texts = pyarrow.array([b"a", b"\xe9t\xe9"])
    strings = pyarrow.StringArray.from_buffers(2, *texts.buffers()[1:])
    parquet.write_table(pyarrow.table({"text": strings}), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match=rf"{tmp_path}/t\.parquet.*1"):
        tables.read(tmp_path / "t.parquet", ["text"])
