"""Parses bytes of each text format into documents: lists of stripped lines of which none is empty, or exact texts.
Lines that are not text are dropped and counted."""

import codecs
import contextlib
import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from bert_jax.data.sources.fields import value_of
from bert_jax.data.sources.problems import BYTES, add_problem
from bert_jax.data.sources.wrapped import join_lines
from bert_jax.registry import user_function

# Reasons in the counts of problems, to drop a line.
NOT_UTF8 = "lines not UTF-8"
WITH_NUL = "lines with NUL bytes"
SEPARATORS = BYTES + "separators"  # of documents, which are no problem
# Escapes of JSON, and bytes of arguments that are not UTF-8.
SURROGATES = re.compile("[\ud800-\udfff]")
# Without controls, formats, surrogates and spaces (categories Cc, Cf, Cs, Z), SentencePiece's space, an empty Braille
# cell, and what is ignored by default, such as fillers and selectors of variants.
VISIBLE = re.compile(
    "[^"
    "\x00-\x20\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f"
    "\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u2581\u2800\u3000\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd"
    "\U000110cd\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
    "]"
)


class Reading(NamedTuple):
    """How the text of a source is parsed into sentences. Small and picklable: workers get it with every block."""

    form: str  # one of config.corpus.format; text for a library's data set
    sentences: str  # lines, rules, wrapped or none
    field: str = "text"  # key of the text, for jsonl; column, for parquet and mds
    document_characters: int = 0  # shorter documents are left out
    line_stops: bool = False  # whether lines that do not end with a sentence stop are left out
    # line that ends a document in the formats lines and files; '': a blank line in lines, none in files
    separator: str = ""
    map: str = ""  # dotted name of a function that documents with text go through; '': none
    tokenizer: str = ""  # path of that which made the tokens of mds


def parse(text: bytes, reading: Reading, problems: Counter) -> Iterator[list[str]]:
    """Yields the documents of a text; for files, text, parquet and mds, it is one document.

    With sentences=none, yields [the characters of a document], with all white space; [] if it has none. In the formats
    lines and wiki, and with a separator, the line breaks around a document are left out. With wrapped, yields
    paragraphs in place of lines.

    Raises BadInput if reading.map, which gets each document as it is in the source, does not return text.
    """
    form, sentences, field, *_ = reading
    separator = reading.separator
    is_exact = sentences == "none"
    if form in ("lines", "wiki") or not is_exact:
        text = text.replace(codecs.BOM_UTF8, b"")
    split = {"lines": split_documents, "wiki": split_wiki}.get(form)
    if separator:
        split = partial(split_documents, separator=separator)
    parts = [text]
    if form == "jsonl":
        parts = records(text, field, problems)
    elif form == "document_per_line":
        parts = filter(bytes.strip, re.split(rb"\r?\n", text))
    for part in parts:
        decoded = decode(part, problems)
        if separator:
            problems[SEPARATORS] += sum(len(line) for line in decoded if line.strip() == separator)
        documents = [decoded]
        if split:
            documents = split(decoded)
        for lines in documents:
            if reading.map and any(map(str.strip, lines)):
                with user_function("corpus.map", reading.map) as change:
                    # TypeError unless it is text.
                    document = SURROGATES.sub("\ufffd", change("\n".join(lines)))
                lines = document.split("\n")
            if sentences == "wrapped":
                lines = join_lines(lines)
            if not is_exact:
                yield list(filter(None, map(str.strip, lines)))
                continue
            document = "\n".join(lines)
            if split:
                document = document.strip("\r\n")
            yield [document] if document else []


def decode(text: bytes, problems: Counter) -> list[str]:
    """Returns the lines of a text. Drops and counts those that are not text."""
    if b"\0" not in text:
        with contextlib.suppress(UnicodeDecodeError):
            return text.decode().split("\n")
    lines = []
    for line in text.split(b"\n"):
        if b"\0" in line:
            add_problem(problems, WITH_NUL, len(line))
            continue
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            add_problem(problems, NOT_UTF8, len(line))
    return lines


def split_documents(lines: list[str], separator: str = "") -> Iterator[list[str]]:
    """Yields documents between lines that equal `separator`, blank ones by default. Skips those without text."""
    groups = itertools.groupby(lines, lambda line: line.strip() != separator)
    for is_document, group in groups:
        document = list(group)
        if is_document and any(map(str.strip, document)):
            yield document


def has_visible(text: str) -> bool:
    """Returns whether a text has a character that can be seen. One without any is empty."""
    return bool(VISIBLE.search(text))


TITLE = re.compile(r'<doc [^>]*?title="(.*?)"[^"]*>$')


def split_wiki(lines: list[str]) -> Iterator[list[str]]:
    """Yields the documents of WikiExtractor's output: `<doc ... title="T">`, T, text, `</doc>`. Skips the title T."""
    document = []
    title = None
    is_inside = False
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("<doc ") and stripped.endswith(">"):
            if is_inside or any(map(str.strip, document)):
                yield document
            document = []
            match = TITLE.match(stripped)
            title = html.unescape(match[1]) if match else None
            is_inside = True
        elif stripped == "</doc>":
            yield document
            document = []
            is_inside = False
        elif title and html.unescape(stripped) == title and not any(map(str.strip, document)):
            title = None
        else:
            document += html.unescape(line).split("\n")  # an entity may be a line break
    if is_inside or any(map(str.strip, document)):
        yield document


def records(text: bytes, field: str, problems: Counter) -> Iterator[bytes]:
    """Yields the text under `field` of each line of JSON. Drops and counts records without it; skips blank lines."""
    for line in text.split(b"\n"):
        line = line.removeprefix(codecs.BOM_UTF8)
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
        yield from text_of_record(record, field, len(line), problems)


def text_of_record(
    record,
    field: str,
    size: int,
    problems: Counter,
) -> Iterator[bytes]:
    """Yields the text under `field` of a record of `size` bytes, with U+FFFD for lone surrogates; counts a record
    without it."""
    value = value_of(record, field)
    if not isinstance(value, str):
        add_problem(problems, f"records without {field!r}", size)
        return
    yield SURROGATES.sub("\ufffd", value).encode()


def replace_surrogates(value):
    """Returns a value of JSON with U+FFFD for lone surrogates, which UTF-8 cannot encode."""
    text = json.dumps(value, ensure_ascii=False)
    if SURROGATES.search(text):
        value = json.loads(SURROGATES.sub("\ufffd", text))
    return value
