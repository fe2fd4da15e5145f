"""Sources and their blocks: what the config names is read, each in its own format, the same at every call."""

import bz2
import json
import lzma
import pickle
import random
from collections import Counter

import pytest
from kits.corpora import read_sources, write

from bert_jax import config as configs
from bert_jax.data import corpus
from bert_jax.errors import BadInput


def open_sources(*overrides):
    return corpus.open_sources(configs.load("demo", list(overrides)))


def read(*overrides):
    return read_sources(open_sources(*overrides))


def test_sources_are_read_in_their_order_each_in_its_format(tmp_path):
    b = write(tmp_path / "b.jsonl", b'{"text": "One. Two."}\n')
    a = write(tmp_path / "a.txt", b"One. Two.\n\nThree.")
    write(tmp_path / "w" / "1", b'<doc id="1" title="T">\nT\nFour. Five.\n</doc>\n')
    source = f"corpus.source={b}, {a},{tmp_path}/w,{tmp_path}/*.txt"
    found, problems = read(source, "corpus.format=jsonl,lines,wiki,files")
    assert found == [["One.", "Two."], ["One. Two."], ["Three."]] + [
        ["Four.", "Five."],
        ["One.", "Two.", "Three."],
    ]
    assert not problems
    sources = open_sources(source, "corpus.format=jsonl,lines,wiki,files")
    assert [s.name for s in sources] == [str(b), str(a), f"{tmp_path}/w", f"{tmp_path}/*.txt"]
    assert [s.files_read["files"] for s in sources] == [1, 1, 1, 1]


@pytest.mark.parametrize("sentences, number", [("lines", 1), ("rules", 2), ("auto", None)])
def test_sentences_by_lines_or_rules(tmp_path, sentences, number):
    write(tmp_path / "a", b"One. Two.")
    write(tmp_path / "j" / "a", b'{"text": "One. Two."}')
    for form, auto in (("lines", 1), ("files", 2), ("jsonl", 2)):
        source = tmp_path / "j" if form == "jsonl" else tmp_path / "a"
        keys = f"corpus.source={source}", f"corpus.format={form}", f"corpus.sentences={sentences}"
        assert len(read(*keys)[0][0]) == (number or auto)


def test_a_file_named_twice_by_one_source_counts_once(tmp_path):
    write(tmp_path / "a" / "b" / "c", b"one")
    (source,) = open_sources(f"corpus.source={tmp_path}/**/**/c")  # two ways to match
    assert source.files_read["files"] == 1 and len(source.paths) == 1
    assert len(open_sources(f"corpus.source={tmp_path}/a,{tmp_path}/a/b")) == 2


@pytest.mark.parametrize("form", ["lines", "files", "wiki", "jsonl"])
def test_blocks_do_not_change_documents(tmp_path, monkeypatch, form):
    draw = random.Random(1)
    for number in range(5):
        texts = [
            "\n".join("word " * draw.randrange(1, 9) for _ in range(draw.randrange(9)))
            for _ in range(30)
        ]
        if form == "wiki":
            texts = [f'<doc id="{i}" title="T">\nT\n\n{t}\n</doc>' for i, t in enumerate(texts)]
        elif form == "jsonl":
            texts = [json.dumps({"text": text}) for text in texts]
        separator = "\n\n" if form in ("lines", "files") else "\n"
        write(tmp_path / f"{number}.txt", separator.join(texts).encode())
    keys = f"corpus.source={tmp_path}", f"corpus.format={form}"
    whole = read(*keys)
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(corpus, "BLOCK", size)
        assert read(*keys) == whole
        (source,) = open_sources(*keys)
        blocks = list(source.blocks(Counter()))
        assert blocks == list(source.blocks(Counter())) and len(blocks) > 4 + (form != "files")
    assert len(whole[0]) == 5 if form == "files" else len(whole[0]) > 100


def test_a_reading_travels(tmp_path):
    write(tmp_path / "a", b"one")
    keys = ["corpus.field=meta.body", "filter.line_characters=7", "filter.line_stops=True"]
    keys += ["filter.document_characters=9", "filter.line_symbols=0.3"]
    (source,) = open_sources(f"corpus.source={tmp_path}/a", *keys)
    assert pickle.loads(pickle.dumps(source.reading)) == source.reading
    assert len(pickle.dumps(source.reading)) < 1000
    assert source.reading == corpus.Reading(
        "lines", "lines", "meta.body", corpus.Filters(9, 7, 0.3, True)
    )


def test_filters_come_before_sentences(tmp_path):
    write(tmp_path / "a", b"History\n\nShort. Text. Here.\n|-|-|-|-|-|\n")
    keys = ["filter.line_characters=10", "filter.line_symbols=0.5", "corpus.sentences=rules"]
    found, problems = read(f"corpus.source={tmp_path}/a", *keys)
    assert found == [[], ["Short.", "Text.", "Here."]]
    assert problems == {"lines under 10 characters": 1, "lines of symbols": 1}


@pytest.mark.parametrize(
    "source, message",
    [("none", "no such file"), ("*.none", "matches no file"), ("dir", "directory without files")],
)
def test_what_is_not_there(tmp_path, source, message):
    (tmp_path / "dir").mkdir()
    write(tmp_path / "a", b"one")
    with pytest.raises(BadInput, match=message):
        open_sources(f"corpus.source={tmp_path}/a,{tmp_path}/{source}")


@pytest.mark.parametrize(
    "content, message",
    [
        (b'{"body": "a"}\n' * 3, "field='text': 3 lines without 'text'"),
        (b"plain text\n\n{}", "1 lines not JSON, 1 lines without 'text'"),
        (b"{}\n" * 400_000 + b'{"text": "late"}', "lines without 'text'"),
    ],
)
def test_a_file_without_a_usable_line(tmp_path, content, message):
    good = write(tmp_path / "good.jsonl", b'{}\n{"text": "a"}')
    bad = write(tmp_path / "z.jsonl", content)
    with pytest.raises(BadInput, match=message) as error:
        open_sources(f"corpus.source={good},{tmp_path}/*.jsonl", "corpus.format=jsonl")
    assert str(bad) in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_empty_files_of_records_are_no_error(tmp_path):
    write(tmp_path / "a.jsonl", b"")
    write(tmp_path / "b.jsonl", b"\n\n")
    write(tmp_path / "c.jsonl", b'{"text": "a"}')
    assert read(f"corpus.source={tmp_path}", "corpus.format=jsonl") == ([["a"]], {})


@pytest.mark.parametrize(
    "content, form, other",
    [
        (b'\n<doc id="1" title="T">\nT\nOne.\n</doc>\n', "lines", "wiki"),
        (b'\xef\xbb\xbf{ "text": "One."}\n', "lines", "jsonl"),
        (b'<doc id="1">\nOne.\n</doc>\n', "files", "wiki"),
        (b'{"text": "One."}\n', "wiki", "jsonl"),
    ],
)
def test_a_file_that_begins_like_another_format(tmp_path, content, form, other):
    write(tmp_path / "a", b"One.\n" if form != "wiki" else b"<doc >\n")
    bad = write(tmp_path / "b", content)
    keys = f"corpus.source={tmp_path}", "corpus.format="
    message = f"format={form}: {bad} begins like a file of the format {other}: "
    with pytest.raises(BadInput, match=message) as error:
        open_sources(keys[0], keys[1] + form)
    assert "\n" not in str(error.value)
    assert open_sources(f"corpus.source={bad}", keys[1] + other)


def test_text_without_articles_is_not_of_wikipedia(tmp_path):
    """A file may begin in the middle of an article."""
    keys = f"corpus.source={tmp_path}", "corpus.format=wiki"
    path = write(tmp_path / "a", b"The end.\n" * 20_000 + b"</doc>\n<doc >\nOne.\n</doc>\n")
    assert len(read(*keys)[0]) == 2
    write(path, b"The end.\nNo <doc in a line.\n")
    with pytest.raises(BadInput, match=f"{path}: no line begins with <doc"):
        open_sources(*keys)
    write(path, b"\n")  # nothing speaks against an empty file
    assert open_sources(*keys)


@pytest.mark.parametrize("text", [b"{ one", b"<docile", b"[1]", b'"{"'])
def test_text_may_begin_with_nearly_anything(tmp_path, text):
    write(tmp_path / "a", text)
    assert read(f"corpus.source={tmp_path}") == ([[text.decode()]], {})


@pytest.mark.parametrize("opener, suffix", [(lzma.open, "xz"), (bz2.open, "bz2")])
def test_records_in_a_damaged_archive(tmp_path, opener, suffix):
    path = tmp_path / f"a.jsonl.{suffix}"
    lines = [json.dumps({"text": f"{number**9}"}) for number in range(20_000)]
    with opener(path, "wb") as file:
        file.write("\n".join(lines).encode())
    keys = f"corpus.source={path}", "corpus.format=jsonl"
    assert len(read(*keys)[0]) == 20_000
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(BadInput, match=f"{path}: damaged or cut short"):
        read(*keys)


def test_a_book_on_a_line(tmp_path):
    """A line of eight megabytes travels whole, whatever pieces it was read in, and becomes two documents."""
    book = "A sentence of the book. " * 330_000
    write(tmp_path / "a.jsonl", json.dumps({"text": book}).encode() + b'\n{"text": "b"}')
    found, problems = read(f"corpus.source={tmp_path}", "corpus.format=jsonl")
    assert len(found) == 3 and found[2] == ["b"]
    assert " ".join(found[0] + found[1]) == book.strip()
    assert problems == {"documents parted": 1}


def test_materialize(tmp_path):
    write(tmp_path / "a", b"one")
    source, pydocs = open_sources(f"corpus.source={tmp_path}/a,pydocs", "corpus.format=files")
    assert corpus.materialize(source, tmp_path, map) == source
    assert pydocs.files_read == {} and pydocs.reading[:2] == ("lines", "rules")
    with pytest.raises(ValueError, match="not materialized"):
        pydocs.blocks(Counter())
    few = lambda function, groups: map(function, groups[:1])  # noqa: E731
    ready = corpus.materialize(pydocs, tmp_path, few)
    assert ready.files_read["files"] == 1 and len(ready.files_read["sha256"]) == 64
    found, problems = read_sources([ready])
    assert len(found) > 20 and not problems
