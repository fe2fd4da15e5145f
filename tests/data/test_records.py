"""One reader of records: a value is the same in every format and compression, as corpus, table, input and prompt; pipes
and tables without a suffix."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import threading
from argparse import Namespace

import pyarrow
import pytest
from kits.corpora import read_sources
from pyarrow import parquet

from bert_jax import config as configs
from bert_jax.commands import score
from bert_jax.data.preparation import corpus
from bert_jax.data.sources import files, tables
from bert_jax.errors import BadInput
from bert_jax.inference import evaluate_texts
from bert_jax.tasks.question_answering import squad
from bert_jax.tasks.translation import load_sources

LINES = ['A "quoted" naïve, 東京 🙂 it\u2028s \x85 one line', "  'two', {\"a\": 1} ", "3"]
VALUES = [*LINES, "with\ttabs\nand a break"]
BOM = b"\xef\xbb\xbf"
# Each of the keywords of a source whose documents keep their characters.
EXACT = "corpus.sentences=none", "objective.name=causal_lm", "task.name=token_blocks"
# {end of the name: the format of the corpus, if it is another}
FORMATS = {".txt": "document_per_line", ".csv": "", ".tsv": "", ".jsonl": "", ".json": ""}
FORMATS |= {".parquet": ""}


def zstd(content: bytes) -> bytes:
    return pyarrow.Codec("zstd").compress(content, asbytes=True)


COMPRESSIONS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".XZ": lzma.compress,
    ".zst": zstd,
    ".zstd": zstd,
}


def values_of(form: str) -> list[str]:
    """Returns the values that a format can have."""
    return LINES if form in (".txt", ".tsv") else VALUES


def encode(form: str, values: list[str]) -> bytes:
    """Returns the content of a file of a format with these values, with a byte order mark."""
    rows = [{"id": number, "text": value} for number, value in enumerate(values)]
    file = io.StringIO(newline="")
    if form == ".parquet":
        content = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(rows), content)
        return content.getvalue()
    if form == ".txt":
        file.writelines(f"{value}\n" for value in values)
    elif form == ".tsv":
        file.writelines(["id\ttext\n", *(f"{row['id']}\t{row['text']}\n" for row in rows)])
    elif form == ".csv":
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
    elif form == ".jsonl":
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        json.dump(rows, file)
    return BOM + file.getvalue().encode()


def documents(source, form: str) -> tuple[list[str], dict]:
    """Returns the documents of a corpus and the numbers of its problems."""
    keys = f"corpus.source={source}", f"corpus.format={form}", *EXACT
    found, problems = read_sources(corpus.open_sources(configs.load("demo", [*keys])))
    return ["".join(document) for document in found], problems


def texts(path) -> list[str]:
    return [text for _, text in tables.read_texts(path)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_value_is_the_same_in_every_format_and_compression(tmp_path, form, compression):
    """As corpus, table or parallel file, input or prompt, sentence to score, and document to evaluate."""
    values = values_of(form)
    path = tmp_path / f"a.text{form}{compression}"
    path.write_bytes(COMPRESSIONS[compression](encode(form, values)))
    assert documents(path, FORMATS[form] or form[1:]) == (values, {})
    assert texts(path) == values
    options = Namespace(input=path, good=None, bad=None, by=None, text=None)
    assert score.read(options)[0] == values
    if form == ".txt":
        os.link(path, tmp_path / f"b.text{compression.lower()}")
        rows = tables.read(tmp_path / "b", ["text"])
    else:
        rows = tables.read(path, ["text"])
        assert [*evaluate_texts.read_documents(path)] == values
    assert [row for _, row in rows] == [[value] for value in values]


def test_a_value_of_a_data_set_is_that_of_its_file(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/train.parquet").write_bytes(encode(".parquet", VALUES))
    source = f"hf:{tmp_path}/set"
    assert documents(source, "lines") == (VALUES, {})
    assert [row for _, row in tables.read(source, ["text"])] == [[value] for value in VALUES]


@pytest.mark.parametrize("form", [".jsonl", ".json"])
def test_a_lone_surrogate_becomes_the_replacement_character(tmp_path, form):
    rows = [{"text": "a\ud800"}, {"text": "b"}]
    path = tmp_path / f"a{form}"
    path.write_text(json.dumps(rows) if form == ".json" else "\n".join(map(json.dumps, rows)))
    assert documents(path, form[1:]) == (["a\ufffd", "b"], {})
    assert texts(path) == ["a\ufffd", "b"]


@pytest.mark.parametrize(
    "form, rows",
    [
        ("csv", "id,text\n1,a\n2\n3,b\n"),
        ("tsv", "id\ttext\n1\ta\n2\n3\tb\n"),
        ("json", '[{"text": "a"}, {"id": 2}, {"text": "b"}]'),
        ("jsonl", '{"text": "a"}\n{"id": 2}\n{"text": "b"}'),
    ],
)
def test_a_record_without_the_field_is_skipped_in_a_corpus_and_refused_in_an_input(
    tmp_path, form, rows
):
    path = tmp_path / f"a.{form}"
    path.write_text(rows)
    assert documents(path, form) == (["a", "b"], {"records without 'text'": 1})
    if form in ("csv", "tsv"):
        with pytest.raises(BadInput, match=f"{path}:3: "):
            texts(path)
    path.write_text(rows.replace("text", "body"))
    with pytest.raises(BadInput, match=f"{path}: .*'text'"):
        documents(path, form)
    with pytest.raises(BadInput, match=f"{path}: .*'text'.*'body'"):
        texts(path)


def test_a_csv_file_that_is_none_is_named_before_any_work(tmp_path):
    (tmp_path / "a.csv").write_text('text\n"a')
    with pytest.raises(BadInput, match="a.csv:2: not CSV"):
        documents(tmp_path / "a.csv", "csv")


# --- Pipes ----------------------------------------------------------------------------------------


@pytest.fixture
def pipe(tmp_path):
    """Returns a function that makes a pipe with a content, which can be read once."""
    threads = []

    def make(name: str, content: bytes):
        path = tmp_path / name
        os.mkfifo(path)
        threads.append(threading.Thread(target=path.write_bytes, args=[content], daemon=True))
        threads[-1].start()
        return path

    yield make
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", FORMATS)
def test_a_pipe_is_read_once(pipe, form, compression):
    content = COMPRESSIONS[compression](encode(form, values_of(form)))
    path = pipe(f"a{form}{compression}", content)
    assert texts(path) == values_of(form)


def test_tasks_read_pipes(pipe):
    path = pipe("rows.tsv", b"text\tlabel\na\tx\n")
    assert tables.read(path, ["text", "label"], optional="label") == [(f"{path}:2", ["a", "x"])]
    question = {"id": 1, "question": "q", "answers": []}
    content = {"version": "2", "data": [{"paragraphs": [{"context": "c", "qas": [question]}]}]}
    path = pipe("squad.json.gz", gzip.compress(BOM + json.dumps(content).encode()))
    assert [example.texts for example in squad.load(None, path)] == [["q", "c"]]


def test_a_corpus_needs_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=f"{tmp_path}/pipe: .*needs files, not pipes"):
        files.find_files(f"{tmp_path}/pipe")


# --- A table as input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.tsv", "en\tde\nthe dog\tder Hund\n", ["the dog"]),
        ("train", "en\tde\nthe dog\tder Hund\n", ["the dog"]),
        ("a.txt", "de\ten\nder Hund\tthe dog\n", ["the dog"]),
        ("a.jsonl", '{"translation": {"en": "the dog", "de": "der Hund"}}', ["the dog"]),
        ("a.txt", "the dog\n\ten\n", ["the dog", "\ten"]),
        ("a.txt", "en\n", ["en"]),
        ("a.txt", "", None),
        ("a.tsv", "the dog\tder Hund\n", None),
        ("a.jsonl", '{"text": "the dog"}', None),
        ("a.csv", "text\nthe dog\n", None),
    ],
)
def test_a_table_to_translate_gives_its_column_or_is_refused(tmp_path, name, content, expected):
    """Never its raw lines, whatever its name."""
    (tmp_path / name).write_text(content)
    config = configs.load("translate", ["task.text=en,de"])
    if expected is None:
        with pytest.raises(BadInput, match=f"{tmp_path}/{name}: "):
            load_sources(config, tmp_path / name)
    else:
        found = load_sources(config, tmp_path / name)
        assert [example.texts for example in found] == [[text, ""] for text in expected]


def test_a_table_without_a_header_gives_its_numbered_column(tmp_path):
    (tmp_path / "a.txt").write_text("the dog\tder Hund\na cat\teine Katze\n")
    config = configs.load("translate", ["task.text=0,1"])
    found = load_sources(config, tmp_path / "a.txt")
    assert [example.texts[0] for example in found] == ["the dog", "a cat"]


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "jsonl", "lines"])
def test_an_empty_file_is_a_corpus_without_documents_and_no_input(tmp_path, form):
    path = tmp_path / f"a.{form}"
    path.write_text("")
    assert documents(path, form) == ([], {"empty files": 1})
    with pytest.raises(BadInput, match=f"{path}: "):
        texts(path)
