"""Text files: finds the files of a source, and reads them in pieces of whole documents, in bounded memory."""

import bz2
import codecs
import contextlib
import glob
import gzip
import hashlib
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bert_jax.data.sources.problems import add_problem
from bert_jax.errors import BadInput, one_line
from bert_jax.storage import checksums

# Reasons in the counts of problems.
EMPTY = "empty files"
REFUSED = "files left out"
TOO_LONG = "records over 16 MB"
CUTS = "cuts in lines over 1 MB"
PARTED = "documents parted"
PIECE = 1 << 20  # bytes read at a time; and of text per task, about
# Bytes; a longer line is cut at a space, unless all of it is read in one piece.
MAX_LINE = 1_000_000
# Bytes of a line of JSON, which can hold a book; a longer one is dropped.
MAX_RECORD = 16_000_000
CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character
MAX_DOCUMENT = 4 << 20  # bytes; a longer document is split between lines, which bounds memory


def open_zstd(path: Path, mode: str):
    """Opens a file for reading; unlike other readers, pyarrow's reads all frames and detects a truncated one."""
    import pyarrow

    return pyarrow.input_stream(open(path, mode), compression="zstd")


OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
OPENERS |= {".zst": open_zstd, ".zstd": open_zstd}
COMPRESSION = rf"({'|'.join(map(re.escape, OPENERS))})?$"  # the end of a name
# {pattern of the beginning of a file that is not read as text: what it is}
FORMATS = {
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "an archive (ZIP), or an Office document, such as an Excel workbook",
    rb"\xff\xfe\0\0|(?s:.\0\0\0)": "text in UTF-32",
    rb"\xff\xfe|\xfe\xff": "text in UTF-16",
    rb"(?s:.\0.\0)": "text in UTF-16LE",
    rb"(?s:\0.\0.)": "text in UTF-16BE",
    rb"(\xef\xbb\xbf)?\s*(<[?!](?s:.*?))?<(tmx|xliff)\b": "XML, such as TMX or XLIFF",
    rb"PAR1\x15": "a Parquet file of another name or format",
    rb"%PDF-": "PDF",
    rb"(?s:.{257})ustar|7z\xbc\xaf|Rar!|]\0\0|BZh\d1AY"
    rb"|\x1f[\x8b\x9d]|\xfd7zXZ|\x28\xb5\x2f\xfd|\x04\x22M\x18": "an archive, or a compressed file of another name",
}
# Names that a directory or a glob does not stand for: hidden ones, and those that Spark and Hadoop add to data.
SKIPPED = re.compile(r"\.|_[^.]*$")


def find_files(source: str) -> list[Path]:
    """Returns the files of one entry of `config.corpus.source` (a file, a directory or a glob), sorted by path.

    Skips hidden files in directories, and follows links. Reads a directory once, whatever links lead to it; a glob that
    matches directories alone stands for these. Raises BadInput if there are no files.
    """
    path = os.path.expanduser(source)
    names = [path]
    if not os.path.exists(path):
        names = list(expand(path))
    if not any(map(os.path.isfile, names)):
        names = [file for name in names for file in expand(f"{glob.escape(name)}/**")]
    paths = {Path(name) for name in names if os.path.isfile(name)}
    if not paths:
        raise BadInput(
            f"config.corpus.source: {source}: names no file (needs files, not pipes, directories with visible"
            " files, pydocs, tfds:NAME or hf:NAME; a comma separates sources, write ? for one in a path)"
        )
    return sorted(paths)


def expand(pattern: str) -> Iterator[str]:
    """Yields the paths that match a glob. Python's own does not end where directories have links to themselves."""
    match = re.fullmatch(r"(|.*?/)\*\*(?:/(.*))?", pattern)
    if not match:
        for name in glob.iglob(pattern):
            if not SKIPPED.match(os.path.basename(name)):
                yield name
        return
    for root in glob.iglob(match[1] or "."):
        for directory in directories(root):
            yield from expand(f"{glob.escape(directory)}/{match[2] or '*'}")


def directories(root: str) -> Iterator[str]:
    """Yields a directory and those in it, each once, whatever links lead there."""
    first_paths = {}  # by the place that they lead to
    for path, names, _ in os.walk(root, followlinks=True):
        if first_paths.setdefault(os.path.realpath(path), path) != path:
            names.clear()  # os.walk goes into those that are left
            continue
        names[:] = sorted(name for name in names if not SKIPPED.match(name))
        yield path


def count(paths: Sequence[Path]) -> dict:
    """Returns the number of files and of their bytes."""
    return {"files": len(paths), "bytes": sum(path.stat().st_size for path in paths)}


def identify(paths: Sequence[Path], run: Callable = map) -> dict:
    """Identifies text files by their content, whatever their names: `count`, and a digest of the files' SHA-256.

    run: maps a function over items, in order.

    Reads the files, which takes about a second per GB.
    """
    digests = "".join(run(checksums.digest, paths)).encode()
    return count(paths) | {"sha256": hashlib.sha256(digests).hexdigest()}


@contextlib.contextmanager
def explain(path: Path, *kinds: type) -> Iterator[None]:
    """Converts errors of these kinds, and those of OSError that the system did not raise, to BadInput: a damaged file.

    An OSError of the system gets the path, which errors of read() lack.
    """
    try:
        yield
    except (*kinds, OSError) as error:
        if getattr(error, "errno", None):
            raise OSError(error.errno, error.strerror, str(path)) from None
        reason = f"damaged, cut short, or not what its name says ({one_line(error)})"
        raise BadInput(f"{path}: {reason}") from None


@contextlib.contextmanager
def open_text(path: Path):
    """Opens a file for reading, and decompresses it. Raises BadInput and OSError as `explain` does."""
    opener = OPENERS.get(path.suffix.lower(), open)
    with explain(path, EOFError, lzma.LZMAError, zlib.error), opener(path, "rb") as file:
        yield file


def check_text(path: Path, start: bytes) -> None:
    """Raises BadInput for a file that begins as one of FORMATS does."""
    for pattern, kind in FORMATS.items():
        if re.match(pattern, start):
            raise BadInput(f"{path}: {kind}; expected text")


def read_lines(
    path: Path,
    form: str,
    problems: Counter,
    size: int,
) -> Iterator[bytes]:
    """Yields pieces of whole lines, about `size` bytes each. Drops records of JSON lines over MAX_RECORD, cuts
    other lines over MAX_LINE, and counts both. In a file that has carriage returns alone, these become line
    breaks.

    Raises BadInput for a damaged archive, and OSError with the path if reading fails.
    """
    line = b""  # the last one, which may go on
    with open_text(path) as file:
        while data := file.read(size):
            if b"\n" not in data[:-1] and b"\r" in data[:-2]:
                data = data.replace(b"\r", b"\n")
            head, newline, tail = data.rpartition(b"\n")
            if newline:
                yield line + head + newline
                line = tail
            else:
                line += data
            if form != "jsonl" and len(line) > MAX_LINE:
                cut = find_cut(line)
                add_problem(problems, CUTS, cut)
                yield line[:cut] + b"\n"
                line = line[cut:]
            elif len(line) > MAX_RECORD:
                dropped = len(line)
                newline = line = b""
                while not newline and (data := file.read(size)):
                    end, newline, line = data.partition(b"\n")
                    dropped += len(end)
                add_problem(problems, TOO_LONG, dropped)
    if line:
        yield line


def find_cut(line: bytes) -> int:
    """Returns where to cut a long line: after a space of its second half, or else between two characters."""
    half = len(line) // 2
    space = line.rfind(b" ", half)
    if space >= 0:
        return space + 1
    last_character = len(line.rstrip(CONTINUATION)) - 1
    return max(last_character, half)


def read_exactly(path: Path) -> Iterator[bytes]:
    """Yields pieces of all bytes of a file except a byte order mark at its beginning. Raises as `read_lines` does."""
    with open_text(path) as file:
        yield file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
        yield from iter(lambda: file.read(PIECE), b"")


def texts(path: Path, reading, problems: Counter) -> Iterator[bytes]:
    """Yields pieces of whole documents from a file; splits documents over MAX_DOCUMENT, but no line of JSON.

    reading: see text.Reading. With sentences=none, keeps all bytes, as `read_exactly` does.
    """
    form, sentences, *_ = reading
    pieces = read_lines(path, form, problems, PIECE)
    if form != "jsonl" and sentences == "none":
        pieces = read_exactly(path)
    text = b""
    for piece in pieces:
        text += piece
        cut = last_boundary(text, form, reading.separator)
        if not cut and form != "jsonl" and len(text) > MAX_DOCUMENT:
            part = text[:MAX_DOCUMENT]
            cut = part.rfind(b"\n") + 1 or find_cut(part)
            add_problem(problems, PARTED, cut)
        if cut:
            yield text[:cut]
            text = text[cut:]
    if text:
        yield text


BLANK_LINE = rb"\n[ \t\r]*\n"
SEPARATOR = rb"\n[ \t\r]*%b[ \t\r]*\n"


def last_boundary(text: bytes, form: str, separator: str) -> int:
    """Returns where the last, possibly incomplete document begins in `text`; 0 if it is the only one.

    separator: line that ends a document in the formats lines and files; '': a blank line in lines, none in files.
    """
    if form in ("jsonl", "document_per_line"):
        return text.rfind(b"\n") + 1
    if form == "wiki":
        return text.rfind(b"\n<doc ") + 1
    if form != "lines" and not separator:
        return 0
    line = SEPARATOR % re.escape(separator.encode()) if separator else BLANK_LINE
    return max((match.end() for match in re.finditer(line, text)), default=0)
