"""Parquet files as sources: a row is a document."""

from collections import Counter

import pyarrow
import pytest
from kits.corpora import config_of, make_text, prepare, read
from pyarrow import parquet

from bert_jax.data import corpus
from bert_jax.errors import BadInput

TEXTS = ["One. Two.", "", None, "第三 texte\nin two lines"]


@pytest.fixture
def path(tmp_path):
    nested = [{"body": text, "number": 1} for text in TEXTS[:3]] + [None]
    columns = {"text": TEXTS, "meta": nested, "number": [1, 2, 3, 4]}
    columns |= {"tags": [["a", "b"]] * 4, "meta.title": ["a", "b", "c", None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=2)
    return tmp_path / "a.parquet"


def texts(path, field: str) -> list[str]:
    keys = f"corpus.source={path}", "corpus.format=parquet", f"corpus.field={field}"
    (source,) = corpus.open_sources(config_of(path.parent, [], *keys))
    return [text.decode() for block in source.blocks(Counter()) for text in block.texts]


def test_rows_are_read_in_order(path):
    assert texts(path, "text") == ["One. Two.", "", "", "第三 texte\nin two lines"]
    assert texts(path, "meta.body") == ["One. Two.", "", "", ""]
    assert texts(path, "meta.title") == ["a", "b", "c", ""]


@pytest.mark.parametrize(
    "field", ["missing", "number", "meta", "meta.number", "tags", "tags.list.element"]
)
def test_a_field_without_text_is_named(path, field):
    with pytest.raises(BadInput, match=f"corpus.field={field}: .* it has text, meta.body"):
        texts(path, field)


def test_a_damaged_file_is_named(path):
    content = path.read_bytes()
    for damaged in (content[:-20], b"this is no archive", b""):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=f"{path}: damaged"):
            texts(path, "text")


def test_a_store_has_a_document_for_each_row(tmp_path):
    documents = make_text(60)
    parquet.write_table(pyarrow.table({"text": documents}), tmp_path / "a.parquet")
    store = prepare(
        config_of(tmp_path, [], f"corpus.source={tmp_path}/a.parquet", "corpus.format=parquet")
    )
    assert sum(len(read(split)) for split in store.splits.values()) == len(documents)
