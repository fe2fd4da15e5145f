"""Parses bytes of each text format into documents, lists of stripped lines of which none is empty. Lines that are not
text are dropped and counted."""

import codecs
import html
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator

from bert_jax.data.sources.fields import value_of
from bert_jax.data.sources.problems import add_problem

# Reasons in the counts of problems: to drop a line, and of records that are kept.
NOT_UTF8 = "lines not UTF-8"
WITH_NUL = "lines with NUL bytes"
SURROGATE = "records with lone surrogates"
# Escapes of JSON, and bytes of arguments that are not UTF-8.
SURROGATES = re.compile("[\ud800-\udfff]")
# A byte order mark between records or documents of files that were joined without a line break.
JOINT = re.compile(b"(?<=[}>])%b(?=[{<])" % codecs.BOM_UTF8)


def parse(text: bytes, form: str, field: str, problems: Counter) -> Iterator[list[str]]:
    """Yields the documents of a text in the format `form`; for files, text and parquet, it is one document."""
    text = JOINT.sub(b"\n", text).replace(codecs.BOM_UTF8, b"")
    if form == "jsonl":
        for record in records(text, field, problems):
            yield from single_document(decode(record, problems))
    else:
        split = {"lines": split_documents, "wiki": split_wiki}.get(form, single_document)
        yield from split(decode(text, problems))


def decode(text: bytes, problems: Counter) -> list[str]:
    """Returns the stripped lines of a text, with empty ones. Drops and counts lines that are not text."""
    lines = []
    for line in text.split(b"\n"):
        if b"\0" in line:
            add_problem(problems, WITH_NUL, len(line))
            continue
        try:
            lines.append(line.decode().strip())
        except UnicodeDecodeError:
            add_problem(problems, NOT_UTF8, len(line))
    return lines


def split_documents(lines: list[str]) -> Iterator[list[str]]:
    """Yields documents that are separated by blank lines."""
    return (list(group) for is_text, group in itertools.groupby(lines, bool) if is_text)


def single_document(lines: list[str]) -> Iterator[list[str]]:
    """Yields all lines of a file as one document."""
    yield [line for line in lines if line]


TITLE = re.compile(r'<doc [^>]*?title="(.*?)"[^"]*>$')


def split_wiki(lines: list[str]) -> Iterator[list[str]]:
    """Yields the documents of WikiExtractor's output: `<doc ... title="T">`, T, text, `</doc>`. Skips the title T."""
    document = []
    title = None
    is_inside = False
    for line in lines:
        if line.startswith("<doc ") and line.endswith(">"):
            if is_inside or document:
                yield document
            document = []
            match = TITLE.match(line)
            title = html.unescape(match[1]) if match else None
            is_inside = True
        elif line == "</doc>":
            yield document
            document = []
            is_inside = False
        elif not document and title and html.unescape(line) == title:
            title = None
        else:
            parts = html.unescape(line).split("\n")  # an entity may be a line break
            document += filter(None, map(str.strip, parts))
    if is_inside or document:
        yield document


def records(text: bytes, field: str, problems: Counter) -> Iterator[bytes]:
    """Yields the text under `field` of each line of JSON. Drops and counts records without it; skips blank lines."""
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode())
        except UnicodeDecodeError:
            add_problem(problems, NOT_UTF8, len(line))
            continue
        except (ValueError, RecursionError):
            add_problem(problems, "records not JSON", len(line))
            continue
        value = value_of(record, field)
        if not isinstance(value, str):
            add_problem(problems, f"records without {field!r}", len(line))
            continue
        try:
            yield value.encode()
        except UnicodeEncodeError:
            add_problem(problems, SURROGATE, len(line))
            yield SURROGATES.sub("\ufffd", value).encode()


def replace_surrogates(value, place: object):
    """Returns a value of JSON with U+FFFD for lone surrogates, which UTF-8 cannot encode; prints how many there are."""
    text, number = SURROGATES.subn("\ufffd", json.dumps(value, ensure_ascii=False))
    if not number:
        return value
    print(f"{place}: {number} lone surrogates become U+FFFD", file=sys.stderr)
    return json.loads(text)
