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
UNREADABLE = frozenset(".zst .zip .7z .rar .tar .tgz .lz4 .parquet .tfrecord".split())


def find_files(source: str) -> list[Path]:
    """The files of one part of `config.corpus.source` (a file, a directory, a glob), each once, sorted by path."""
    if Path(source).is_dir():
        found, problem = files_below(Path(source)), "is a directory without files"
    else:
        names = [source] if Path(source).exists() else glob.glob(source, recursive=True)
        found = [Path(name) for name in names if Path(name).is_file()]
        problem = "matches no file" if glob.has_magic(source) else "no such file"
    if not found:
        raise BadInput(f"config.corpus.source: {source} {problem}")
    for path in found:
        if path.suffix in UNREADABLE:
            raise BadInput(
                f"config.corpus.source: {path}: {path.suffix} is not read; plain, .gz, .bz2 and .xz are"
            )
    return sorted(set(found))


def files_below(directory: Path) -> list[Path]:
    """Every file of a directory and of those below it, hidden ones left out."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return [path for path in found if path.is_file()]


def files_read(paths: list[Path]) -> dict:
    """What is cheap to know about text files: how many, their bytes together, a digest of names and sizes."""
    table = [[path.name, path.stat().st_size] for path in paths]
    digest = hashlib.sha256(json.dumps(table).encode()).hexdigest()
    return {"files": len(table), "bytes": sum(size for _, size in table), "sha256": digest}


def read_lines(
    path: Path, problems: Counter, longest: int = LONGEST_LINE, size: int = PIECE
) -> Iterator[bytes]:
    """Pieces of whole lines, about `size` bytes each; lines over `longest` are dropped without being held."""
    rest, skipping = b"", False
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
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
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise BadInput(f"{path}: damaged or cut short ({error})") from None
    except OSError as error:
        if path.suffix == ".bz2" and error.errno is None:  # what bz2 calls damage
            raise BadInput(f"{path}: damaged or cut short ({error})") from None
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None
    if rest:
        yield rest


def too_long(longest: int) -> str:
    """The reason for which a line over `longest` bytes is dropped."""
    return f"lines over {longest // 1_000_000} MB"


def texts(path: Path, form: str, problems: Counter, size: int = PIECE) -> Iterator[bytes]:
    """Pieces of a file that end where a document ends, or where one is over LONGEST_DOCUMENT."""
    if form == "jsonl":  # a document is a line
        yield from read_lines(path, problems, LONGEST_RECORD, size)
        return
    rest = b""
    for piece in read_lines(path, problems, LONGEST_LINE, size):
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


def last_boundary(text: bytes, form: str) -> int:
    """Where the last document that may still go on begins in `text`; 0 if it is the first."""
    if form == "wiki":
        return text.rfind(b"\n<doc ") + 1
    end = 0
    if form == "lines":
        for match in BLANK_LINE.finditer(text):
            end = match.end()
    return end
