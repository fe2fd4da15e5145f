"""Each format's documents; what is not text is dropped and counted, and never an error."""

import json
from collections import Counter

import pytest

from bert_jax.data.sources import text


def parse(content, form="lines", field="text"):
    """([document of lines], problems) of some bytes."""
    problems = Counter()
    return list(text.parse(content, form, field, problems)), dict(problems)


def test_lines():
    content = b"\xef\xbb\xbf\n\none\ntwo \r\n \t\r\n\nthree\n\nfour"
    assert parse(content) == ([["one", "two"], ["three"], ["four"]], {})
    assert parse(b"") == ([], {})


def test_files_and_whole_texts():
    for form in ("files", "text"):
        assert parse(b"One. Two.\r\n\nThree.\n", form)[0] == [["One. Two.", "Three."]]
        assert parse(b"\n \n", form)[0] == [[]]


WIKI = """<doc id="1" url="u" title="A &amp; B">
A & B

First here. Second here.
History.
</doc>
<doc id="2" url="u" title="Empty">
Empty
</doc>
<doc id="3" url="u" title="C">
Not the title. More.

C
</doc>
"""


def test_wiki():
    first = ["First here. Second here.", "History."]
    assert parse(WIKI.encode(), "wiki")[0] == [first, [], ["Not the title. More.", "C"]]


def test_bad_lines_are_dropped_and_counted():
    bad = [b"a\xffb", b"nul\0nul", b"x" * 10_000_000, b"x" * 1_500_000, b"\xc3"]
    problems = {"lines not UTF-8": 2, "lines with NUL bytes": 1, "lines over 1 MB": 2}
    assert parse(b"\n".join([b"first", *bad, b"last"])) == ([["first", "last"]], problems)


def test_whole_texts_have_lines_of_any_length():
    found, problems = parse(b"x" * 3_000_000 + b"\na\0b\nc\xff\nlast", "text")
    assert [len(line) for line in found[0]] == [3_000_000, 4]
    assert problems == {"lines not UTF-8": 1, "lines with NUL bytes": 1}


def records(*values, **keys):
    lines = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return parse(b"\r\n".join(lines), "jsonl", **keys)


def test_a_record_is_a_document():
    found, problems = records(
        {"text": "One. Two.\n\n Three. "}, b"", {"text": ""}, {"text": "四。"}
    )
    assert found == [["One. Two.", "Three."], [], ["四。"]] and not problems
    assert parse(b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}', "jsonl") == ([["a"], ["b"]], {})


def test_records_without_text_are_dropped_and_counted():
    bad = [b"{", b"nonsense", b'{"text": "a\xff"}', b"[" * 100_000, b'{"text": "a"', b'{"n": NUL}']
    without = [{}, {"text": 1}, {"text": None}, ["text"], "text", 7, {"meta": {"text": "a"}}]
    found, problems = records({"text": "a"}, *bad, *without, {"text": "z"})
    assert found == [["a"], ["z"]]
    assert problems == {"lines not UTF-8": 1, "lines not JSON": 5, "lines without 'text'": 7}


def test_a_field_can_be_nested():
    values = [{"meta": {"text": "a"}}, {"meta": "text"}, {"meta": {"text": {}}}, {"text": "b"}]
    found, problems = records(*values, field="meta.text")
    assert found == [["a"]] and problems == {"lines without 'meta.text'": 3}


def test_what_json_can_spell_and_text_cannot_be():
    found, problems = records(b'{"text": "a\\ud800b \\ud83d\\ude00\\nnul\\u0000\\nend"}')
    assert found == [["a\ufffdb \U0001f600", "end"]]
    assert problems == {"texts with half surrogate pairs, replaced": 1, "lines with NUL bytes": 1}
    assert "".join(found[0]).encode()


def test_a_book_is_a_line_and_is_parted():
    book = "some words of a book " * 700_000
    found, problems = records({"text": book}, {"text": "x"})
    assert problems == {"documents parted": 3} and len(found) == 3 + 1 + 1
    assert " ".join(line for document in found[:-1] for line in document) == book.strip()


@pytest.mark.parametrize(
    "whole", ["a b\ncd e\n\nf", "abcdefghij", "四五六七八九十" * 3, "", "é" * 40]
)
@pytest.mark.parametrize("longest", [4, 5, 7, 100])
def test_parts_lose_nothing(whole, longest):
    for value in (whole, whole.encode()):
        problems = Counter()
        found = list(text.parts(value, longest, problems))
        assert value[:0].join(found) == value
        assert all(len(part) <= longest for part in found)
        assert problems["documents parted"] == len(found) - 1
        if isinstance(value, bytes):
            assert all(part.decode() or not value for part in found)


def test_parts_are_cut_after_lines_or_else_spaces():
    assert list(text.parts("one two\nthree four", 10, Counter())) == ["one two\n", "three four"]
    assert list(text.parts("onetwo three", 10, Counter())) == ["onetwo ", "three"]
