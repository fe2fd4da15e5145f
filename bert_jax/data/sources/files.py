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
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage.remote import is_address

PIECE = 1 << 20  # bytes that are read at a time
LONGEST_LINE = 1_000_000  # bytes; longer lines are not text
LONGEST_RECORD = 16_000_000  # bytes of a line of JSON, which can be a book
LONGEST_DOCUMENT = 4 << 20  # bytes; longer ones are parted at a line, so that memory stays bounded

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNREADABLE = frozenset(
    ".zst .zip .7z .rar .tar .tgz .tbz .tbz2 .txz .lz4 .parquet .tfrecord".split()
)

NO_SUCH_FILE = "no such file (for a comma in a path write ?: commas part sources)"


def find_files(source: str) -> list[Path]:
    """The files of one part of `config.corpus.source` (a file, a directory, a glob), each once, sorted by path.

    Raises BadInput, also for a file that cannot be opened.
    """
    if is_address(source):
        raise BadInput(
            f"config.corpus.source: {source}: text is read from disks alone; copy it to one first"
        )
    source = os.path.expanduser(source)
    if Path(source).is_dir():
        found, problem = files_below(Path(source)), "is a directory without files"
    else:
        names = [source] if Path(source).exists() else glob.glob(source, recursive=True)
        found = [Path(name) for name in names if Path(name).is_file()]
        problem = "matches no file" if glob.has_magic(source) else NO_SUCH_FILE
    if not found:
        raise BadInput(f"config.corpus.source: {source} {problem}")
    for path in found:
        check_file(path)
    return sorted(set(found))


def check_file(path: Path) -> None:
    """Refuses, before any work, a file of a kind that is not read and one that cannot be opened."""
    suffix = path.suffix.lower()
    if suffix in OPENERS and path.stem.lower().endswith(".tar"):
        suffix = f".tar{suffix}"
    if suffix in UNREADABLE or suffix.startswith(".tar"):
        raise BadInput(
            f"config.corpus.source: {path}: {suffix} is not read; plain, .gz, .bz2 and .xz are"
        )
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise cannot_be_read(error, path) from None


def cannot_be_read(error: OSError, path: Path | str) -> BadInput:
    return BadInput(f"config.corpus.source: {path}: cannot be read ({error.strerror or error})")


def files_below(directory: Path) -> list[Path]:
    """Every file of a directory and of those below it, links followed, hidden ones left out.

    A directory that can be reached by several names is read once, by the first of them; BadInput for one that cannot
    be read.
    """

    def refuse(error: OSError) -> None:
        raise cannot_be_read(error, error.filename)

    found, seen = [], set()
    for folder, folders, names in os.walk(directory, onerror=refuse, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()  # or a link to a directory above it would never end
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
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
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise BadInput(f"{path}: damaged or cut short ({error})") from None
    except OSError as error:
        if path.suffix.lower() == ".bz2" and error.errno is None:  # what bz2 calls damage
            raise BadInput(f"{path}: damaged or cut short ({error})") from None
        raise OSError(error.errno, error.strerror, str(path)) from None  # reading does not name it
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


def read_texts(path: Path, offset: int, sizes: Iterable[int]) -> Iterator[bytes]:
    """Texts that lie one after the other in a plain file; BadInput where it has become shorter."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            for size in sizes:
                text = file.read(int(size))
                if len(text) < size:
                    raise BadInput(f"{path}: the text has changed while it was read")
                yield text
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
