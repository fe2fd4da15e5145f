"""Parsing of each text format; lines that are not text are dropped and counted, and never an error."""

import json
from collections import Counter

import pytest

from bert_jax.data.sources import text
from bert_jax.data.sources.problems import BYTES, numbers_of


def parse(content, form="lines", field="text"):
    """Returns the documents in some bytes, as lists of lines, and the numbers of problems."""
    problems = Counter()
    documents = list(text.parse(content, text.Reading(form, "lines", field), problems))
    return documents, numbers_of(problems)


def records(*values, field="text"):
    lines = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return parse(b"\xef\xbb\xbf" + b"\r\n".join(lines), "jsonl", field)


WIKI = b"""<doc id="1" url="u" title="A &amp; B">
A & B

One. Two.
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


@pytest.mark.parametrize(
    "form, content, documents",
    [
        ("lines", b"\xef\xbb\xbf\n\none\ntwo \r\n \t\r\n\n3\n\n4", [["one", "two"], ["3"], ["4"]]),
        ("files", b"One. Two.\r\n\nThree.\n", [["One. Two.", "Three."]]),
        ("document_per_line", b"\xef\xbb\xbfo\re\n\n two \r\n \n3", [["o\re"], ["two"], ["3"]]),
        ("wiki", WIKI, [["One. Two.", "History."], [], ["Not the title. More.", "C"]]),
    ],
)
def test_documents_of_each_format(form, content, documents):
    assert parse(content, form) == (documents, {})


def test_bad_lines_are_dropped_and_counted():
    bad = [b"a\xffb", b"nul\0nul", b"\xc3"]
    lines, problems = b"\n".join([b"first", *bad, b"last"]), Counter()
    problems |= {"lines not UTF-8": 2, "lines with NUL bytes": 1}
    assert parse(lines) == ([["first", "last"]], problems)


@pytest.mark.parametrize(
    "form, line, reason",
    [
        ("lines", b"a\xffb", "lines not UTF-8"),
        ("files", b"nul\0nul", "lines with NUL bytes"),
        ("jsonl", b'{"text": "a\xff"}', "lines not UTF-8"),
        ("jsonl", b'{"text": "a"', "records not JSON"),
        ("jsonl", b'{"body": "a long text"}', "records without 'text'"),
    ],
)
def test_dropped_text_is_counted_in_bytes(form, line, reason):
    problems = Counter()
    reading = text.Reading(form, "lines")
    list(text.parse(b"\n".join([line, b"", line + b" "]), reading, problems))
    assert problems[BYTES + reason] == 2 * len(line) + 1 and problems[reason] == 2


def test_a_record_is_a_document():
    values = {"text": "One. Two.\n\n Three. "}, b"", {"text": ""}, {"text": "四。"}
    assert records(*values) == ([["One. Two.", "Three."], [], ["四。"]], {})


def test_records_without_text_are_dropped_and_counted():
    bad = [b"{", b"nonsense", b'{"meta": "a\xff"}', b"[" * 100_000, b'{"meta": "a"', b'{"n": NUL}']
    without = [{}, {"meta": 1}, {"meta": None}, ["meta"], "meta", {"text": {}}, {"text": "a"}]
    without += [{"meta": {"text": {}}}]
    good = {"meta": {"text": "a"}}
    found, problems = records(good, *bad, *without, good, field="meta.text")
    assert found == [["a"], ["a"]]
    counts = {"records not JSON": 5, "lines not UTF-8": 1, "records without 'meta.text'": 8}
    assert problems == counts


def test_json_escapes_that_are_not_valid_text_are_replaced():
    """Lone surrogates, each by U+FFFD; pairs of them are characters. Lines with NUL are dropped."""
    found, problems = records(b'{"text": "a\\ud800b \\ud83d\\ude00\\udc00\\nnul\\u0000\\nend"}')
    assert found == [["a\ufffdb \U0001f600\ufffd", "end"]]
    assert problems == {"lines with NUL bytes": 1}


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("between", [b"\n" + BOM, b"\r\n" + BOM + b"\r\n"])
def test_joined_files_with_byte_order_marks(between):
    first = '{"text": "{a}\ufeff"}'.encode()
    found = parse(BOM + between.join([first, b'{"text": "b"}']), "jsonl")
    assert found == ([["{a}"], ["b"]], {})


def test_lines_and_documents_of_joined_files_begin_with_no_byte_order_mark():
    assert parse(BOM + b"a\n" + BOM + b"b\n\n" + BOM + b"c") == ([["a", "b"], ["c"]], {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("a.b", {"a.b": "x"}),
        ("a.b", {"a.b": "x", "a": {"b": "y"}}),
        ("a.b.c", {"a.b": {"c": "x"}}),
        ("a.b.c", {"a": {"b.c": "x"}, "a.b": "y"}),
        ("a.b.c.d", {"a": {"b": 1}, "a.b": {"c": {"d": None}}, "a.b.c": {"d": "x"}}),
    ],
)
def test_dots_in_a_key_are_a_part_of_it_or_address_nested_ones(field, value):
    assert records(value, field=field) == ([["x"]], {})


def test_entities_of_wikiextractor_are_characters():
    """Once: what the page shows as an entity stays one. A character may be white space or a line break."""
    lines = "AT&amp;T &lt;doc id=1&gt;", "&lt;/doc&gt;", "&amp;lt;", "&nbsp;", "a&#10;&#10; b"
    text = '<doc id="1" title="T">\nT\n\n' + "\n".join(lines) + "\n</doc>\n"
    ((document,), problems) = parse(text.encode(), "wiki")
    assert document == ["AT&T <doc id=1>", "</doc>", "&lt;", "a", "b"] and not problems
