"""Parses bytes of each text format into documents, lists of stripped lines of which none is empty. Lines that are not
text are dropped and counted."""

import codecs
import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator

NOT_UTF8, WITH_NUL = "lines not UTF-8", "lines with NUL bytes"  # reasons to drop a line
RECORD_NOT_UTF8 = "records not UTF-8"
# The encodings that an error may name. Code pages of Latin letters are hard to tell apart, so only the most common of
# them is here.
ENCODINGS = "utf_16 utf_16_le utf_16_be cp1252 cp1251 cp1253 cp1255 cp1256".split()
ENCODINGS += "koi8_r gb18030 big5 shift_jis euc_kr".split()


def parse(text: bytes, form: str, field: str, problems: Counter) -> Iterator[list[str]]:
    """Yields the documents of a text in the format `form`; for files, text and parquet, it is one document."""
    text = text.removeprefix(codecs.BOM_UTF8)
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
            problems[WITH_NUL] += 1
        else:
            try:
                lines.append(line.decode().strip())
            except UnicodeDecodeError:
                problems[NOT_UTF8] += 1
    return lines


def likely_encoding(text: bytes) -> str:
    """Returns what an error says about a text that is not UTF-8: the likely encoding, and how to convert it."""
    import charset_normalizer  # only here: a machine that trains on saved batches may lack it

    whole = text[: len(text) // 2 * 2]  # of UTF-16, the last line break may be cut in half
    best = charset_normalizer.from_bytes(whole, cp_isolation=ENCODINGS).best()
    if not best:
        return "not UTF-8; is it text?"
    name = best.encoding.upper().replace("_", "-").replace("16-", "16")  # as iconv spells it
    command = f"iconv -f {name} -t UTF-8 FILE > NEW"
    return f"not UTF-8 but probably {name}; convert it, and look at the result: {command}"


def split_documents(lines: list[str]) -> Iterator[list[str]]:
    """Yields documents that are separated by blank lines."""
    return (list(group) for is_text, group in itertools.groupby(lines, bool) if is_text)


def single_document(lines: list[str]) -> Iterator[list[str]]:
    """Yields all lines of a file as one document."""
    yield [line for line in lines if line]


TITLE = re.compile(r'<doc [^>]*?title="(.*?)"[^"]*>$')


def split_wiki(lines: list[str]) -> Iterator[list[str]]:
    """Yields the documents of WikiExtractor's output: `<doc ... title="T">`, T, text, `</doc>`. Skips the title T."""
    document, title, inside = [], None, False
    for line in lines:
        if line.startswith("<doc ") and line.endswith(">"):
            if inside or document:
                yield document
            match = TITLE.match(line)
            document, title, inside = [], html.unescape(match[1]) if match else None, True
        elif line == "</doc>":
            yield document
            document, inside = [], False
        elif line and not document and title is not None and html.unescape(line) == title:
            title = None
        elif line:
            document.append(line)
    if inside or document:
        yield document


def records(text: bytes, field: str, problems: Counter) -> Iterator[bytes]:
    """Yields the text under `field` of each line of JSON. Drops and counts records without it; skips blank lines."""
    for line in text.split(b"\n"):
        if line and not line.isspace():
            try:
                value = json.loads(line.decode())
            except UnicodeDecodeError:
                problems[RECORD_NOT_UTF8] += 1
                continue
            except (ValueError, RecursionError):
                problems["records not JSON"] += 1
                continue
            for name in field.split("."):
                value = value.get(name) if isinstance(value, dict) else None
            if isinstance(value, str):
                # An escape in JSON can be a lone surrogate, which UTF-8 cannot encode.
                yield value.encode(errors="replace")
            else:
                problems[f"records without {field!r}"] += 1
