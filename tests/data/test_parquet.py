"""Parquet files as sources: a row is a document."""

import pyarrow
import pytest
from kits.corpora import config_of, read_sources
from pyarrow import parquet

from bert_jax.data.preparation import corpus
from bert_jax.errors import BadInput

ROWS = ["One. Two.", "", None, "第三 texte\nin two lines"]


@pytest.fixture
def path(tmp_path):
    nested = [{"body": text, "number": 1} for text in ROWS[:3]] + [None]
    columns = {"text": ROWS, "meta": nested, "number": [1, 2, 3, 4]}
    columns |= {"tags": [["a", "b"]] * 4, "meta.title": ["a", "b", "c", None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=2)
    return tmp_path / "a.parquet"


def read(path, field: str) -> tuple[list[list[str]], dict]:
    """Returns the documents, and the number of problems by reason."""
    keys = f"corpus.source={path}", "corpus.format=parquet", f"corpus.field={field}"
    return read_sources(corpus.open_sources(config_of(path.parent, [], *keys)))


def documents(path, field: str) -> list[list[str]]:
    return read(path, field)[0]


def test_rows_are_read_in_order(path):
    """Each is a document."""
    assert documents(path, "text") == [["One.", "Two."], [], [], ["第三 texte", "in two lines"]]
    assert documents(path, "meta.body") == [["One.", "Two."], [], [], []]
    assert documents(path, "meta.title") == [["a"], ["b"], ["c"], []]


def test_text_that_is_not_utf8_is_dropped_and_counted(tmp_path):
    """It is that of a null, as of a row of another encoding, in any of the types for text."""
    texts = pyarrow.array([b"One.", "première".encode("cp1252"), None, "Été.".encode()])
    strings = pyarrow.StringArray.from_buffers(4, *texts.buffers()[1:], texts.buffers()[0])
    nested = pyarrow.StructArray.from_arrays([strings], ["b.c"])
    columns = {"a": nested, "plain": strings, "large": strings.cast("large_string")}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    for field in ("plain", "large", "a.b.c"):
        found, problems = read(tmp_path / "a.parquet", field)
        assert found == [["One."], [], [], ["Été."]] and problems == {"lines not UTF-8": 1}


@pytest.mark.parametrize(
    "field", ["missing", "number", "meta", "meta.number", "tags", "tags.list.element"]
)
def test_a_field_without_text_is_named(path, field):
    with pytest.raises(BadInput, match=f"corpus.field={field}: .* it has text, meta.body"):
        documents(path, field)


def test_a_damaged_file_is_named(path):
    content = path.read_bytes()
    for damaged in (content[:-20], b"this is no archive", b""):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=f"{path}: damaged"):
            documents(path, "text")
