"""Text files: which ones a source names, and their text in pieces that hold whole documents, in bounded memory."""

import bz2
import glob
import gzip
import hashlib
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput

PIECE = 1 << 20  # bytes that are read at a time
LONGEST_LINE = 1_000_000  # bytes; longer lines are not text
LONGEST_RECORD = 16_000_000  # bytes of a line of JSON, which can be a book
LONGEST_DOCUMENT = 4 << 20  # bytes; longer ones are parted at a line, so that memory stays bounded

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def find_files(source: str) -> list[Path]:
    """The files of one part of `config.corpus.source` (a file, a directory, a glob), each once, sorted by path.

    Hidden files are left out of directories, and links followed. Raises BadInput where there are none.
    """
    path = os.path.expanduser(source)
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "**")
    names = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    found = sorted({Path(name) for name in names if os.path.isfile(name)})
    if not found:
        hint = "on a disk; for a comma in a path write ?: commas part sources"
        raise BadInput(f"config.corpus.source: {source}: no such file ({hint})")
    return found


def files_read(paths: list[Path]) -> dict:
    """Identifies text files by their number, total bytes, and a digest of names and sizes, reading none."""
    table = [[path.name, path.stat().st_size] for path in paths]
    digest = hashlib.sha256(json.dumps(table).encode()).hexdigest()
    return {"files": len(table), "bytes": sum(size for _, size in table), "sha256": digest}


def read_lines(
    path: Path, problems: Counter, longest: int = LONGEST_LINE, size: int = PIECE
) -> Iterator[bytes]:
    """Pieces of whole lines, about `size` bytes each; lines over `longest` are dropped without being held.

    Raises BadInput for a damaged archive, and OSError, with the path, where the machine fails.
    """
    rest, skipping = b"", False
    try:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            while data := file.read(size):
                head, newline, tail = data.rpartition(b"\n")
                if newline:
                    whole, rest = rest + head + newline, tail
                    if skipping:  # it begins with the end of a line that was too long
                        whole, skipping = whole.partition(b"\n")[2], False
                    yield whole
                elif not skipping:
                    rest += data
                if len(rest) > longest:
                    rest, skipping = b"", True
                    problems[too_long(longest)] += 1
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if getattr(error, "errno", None):  # reading does not name the file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise BadInput(f"{path}: damaged or cut short ({error})") from None
    if rest:
        yield rest


def too_long(longest: int) -> str:
    """The reason for which a line over `longest` bytes is dropped."""
    return f"lines over {longest // 1_000_000} MB"


def texts(path: Path, form: str, problems: Counter, size: int = PIECE) -> Iterator[bytes]:
    """Pieces of a file that end where a document ends, or where one is over LONGEST_DOCUMENT."""
    rest = b""
    for piece in read_lines(path, problems, longest_line(form), size):
        rest += piece
        cut = last_boundary(rest, form)
        if not cut and len(rest) > LONGEST_DOCUMENT:
            problems["documents parted"] += 1
            cut = len(rest)
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")


def longest_line(form: str) -> int:
    return LONGEST_RECORD if form == "jsonl" else LONGEST_LINE


def last_boundary(text: bytes, form: str) -> int:
    """Where the last document that may still go on begins in `text`; 0 if it is the first."""
    if form == "jsonl":  # a document is a line
        return len(text)
    if form == "wiki":
        return text.rfind(b"\n<doc ") + 1
    ends = [match.end() for match in BLANK_LINE.finditer(text)] if form == "lines" else []
    return ends[-1] if ends else 0
