"""Where documents come from: text files, and `pydocs`, the prose that every installation carries.

A corpus is read as blocks: lists of texts (bytes) that together are about a megabyte and hold whole
documents. Cutting blocks is cheap and done by one process; `documents` turns a block into sentences
and is done by many. A new source is a function that yields blocks.
"""

import ast
import glob
import gzip
import hashlib
import html
import importlib.util
import json
import lzma
import re
import sysconfig
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.errors import BadInput

BLOCK = 1 << 20  # bytes of text that are worked on together, about
LONGEST_LINE = 1_000_000  # bytes; longer lines are not text
LONGEST_DOCUMENT = 4 << 20  # bytes; longer ones are parted at a line, so that memory stays bounded
LONGEST_SENTENCE = 2000  # characters; longer ones are parted at a space

Block = list[bytes]


class Reading(NamedTuple):
    form: str
    sentences: str


class Source(NamedTuple):
    name: str
    reading: Reading
    files_read: dict
    paths: list[Path]

    def blocks(self, problems: Counter) -> Iterator[Block]:
        return blocks(self.paths, self.reading.form, problems)


def open_sources(config) -> list[Source]:
    names = [name.strip() for name in config.corpus.source.split(",")]
    forms = config.corpus.format.split(",") * len(names)
    return [
        open_source(name, form, config.corpus.sentences)
        for name, form in zip(names, forms, strict=False)
    ]


def open_source(name: str, form: str, sentences: str) -> Source:
    if name == "pydocs":
        return Source(name, Reading("lines", "rules"), {}, [])
    paths = find_files(name)
    sentences = {"auto": "lines" if form == "lines" else "rules"}.get(sentences, sentences)
    return Source(name, Reading(form, sentences), files_read(paths), paths)


def files_read(paths: list[Path]) -> dict:
    """What is cheap to know about text files: how many, their bytes together, a digest of names and sizes."""
    table = [[path.name, path.stat().st_size] for path in paths]
    digest = hashlib.sha256(json.dumps(table).encode()).hexdigest()
    return {"files": len(table), "bytes": sum(size for _, size in table), "sha256": digest}


def materialize(source: Source, directory: Path, run: Callable) -> Source:
    if source.name != "pydocs":
        return source
    path = directory / "pydocs.txt"
    write_pydocs(path, run)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    read = {"files": 1, "bytes": path.stat().st_size, "sha256": digest}
    return source._replace(paths=[path], files_read=read)


# --- Text files -----------------------------------------------------------------------------------


def find_files(source: str) -> list[Path]:
    """The files that the globs of `config.corpus.source` name, each once, sorted by path."""
    found = set()
    for pattern in filter(None, map(str.strip, source.split(","))):
        names = [pattern] if Path(pattern).exists() else glob.glob(pattern, recursive=True)
        files = [Path(name) for name in names if Path(name).is_file()]
        if not files:
            what = "matches no file" if glob.has_magic(pattern) else "no such file"
            raise BadInput(f"config.corpus.source={source!r}: {pattern} {what}")
        found.update(files)
    if not found:
        raise BadInput(f"config.corpus.source={source!r}: names no file")
    return sorted(found)


def open_text(path: Path):
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    return opener(path, "rb")


def read_lines(path: Path, problems: Counter) -> Iterator[bytes]:
    """Pieces of whole lines, about a megabyte each; memory does not grow with a long line."""
    rest, skipping = b"", False
    try:
        with open_text(path) as file:
            while data := file.read(BLOCK):
                head, newline, tail = data.rpartition(b"\n")
                if newline:
                    whole, rest = rest + head + newline, tail
                    if skipping:  # it begins with the end of a line that was too long
                        whole, skipping = whole.partition(b"\n")[2], False
                    yield whole
                elif not skipping:
                    rest += data
                if len(rest) > LONGEST_LINE:
                    rest, skipping = b"", True
                    problems["lines over 1 MB"] += 1
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise BadInput(f"{path}: damaged or cut short ({error})") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None
    if rest:
        yield rest


def last_boundary(text: bytes, form: str) -> int:
    """Where the last document that may still go on begins in `text`; 0 if it is the first."""
    if form == "wiki":
        return text.rfind(b"\n<doc ") + 1
    end = 0
    if form == "lines":
        for match in BLANK_LINE.finditer(text):
            end = match.end()
    return end


BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")


def whole_documents(path: Path, form: str, problems: Counter) -> Iterator[bytes]:
    """Pieces of a file that end where a document ends, or where one is over LONGEST_DOCUMENT."""
    rest = b""
    for piece in read_lines(path, problems):
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


def blocks(paths: Iterable[Path], form: str, problems: Counter) -> Iterator[Block]:
    """Text files as blocks, which depend on nothing but the files."""
    block, size = [], 0
    for path in paths:
        for text in whole_documents(path, form, problems):
            block.append(text)
            size += len(text)
            if size >= BLOCK:
                yield block
                block, size = [], 0
    if block:
        yield block


# --- From a block to sentences --------------------------------------------------------------------


def documents(block: Block, reading, problems: Counter) -> list[list[str]]:
    """The documents of a block as lists of sentences; a document may turn out empty."""
    form, sentences = reading.form, reading.sentences
    split = str.split if sentences == "lines" else split_sentences
    part = {"lines": part_lines, "files": part_file, "wiki": part_wiki}[form]
    result = []
    for text in block:
        for lines in part(decode(text, problems)):
            if sentences == "lines":
                result.append([piece for line in lines for piece in cap(line)])
            else:
                result.append([sentence for line in lines for sentence in split(line)])
    return result


def decode(text: bytes, problems: Counter) -> list[str]:
    """Stripped lines of a text. Lines that are not text are dropped and counted."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    if b"\0" not in text and (
        len(text) <= LONGEST_LINE or max(map(len, text.split(b"\n"))) <= LONGEST_LINE
    ):
        try:
            return [line.strip() for line in text.decode().split("\n")]
        except UnicodeDecodeError:
            pass
    lines = (decode_line(line, problems) for line in text.split(b"\n"))
    return [line.strip() for line in lines if line is not None]


def decode_line(line: bytes, problems: Counter) -> str | None:
    if len(line) > LONGEST_LINE:
        problems["lines over 1 MB"] += 1
    elif b"\0" in line:
        problems["lines with NUL bytes"] += 1
    else:
        try:
            return line.decode()
        except UnicodeDecodeError:
            problems["lines not UTF-8"] += 1
    return None


def part_lines(lines: list[str]) -> Iterator[list[str]]:
    """Documents parted by blank lines."""
    document = []
    for line in lines:
        if line:
            document.append(line)
        elif document:
            yield document
            document = []
    if document:
        yield document


def part_file(lines: list[str]) -> Iterator[list[str]]:
    """One document a file."""
    yield [line for line in lines if line]


TITLE = re.compile(r'<doc [^>]*?title="(.*?)"[^"]*>$')


def part_wiki(lines: list[str]) -> Iterator[list[str]]:
    """WikiExtractor blocks, `<doc ... title="T">`, T, text, `</doc>`; the title T is left out."""
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


# A stop that may end a sentence: Latin ones before white space, Chinese and Japanese ones anywhere;
# closing quotes and brackets belong to it. What the sentence goes on with decides in the Latin
# case.
STOP = re.compile(
    r"""[.!?…](?![.!?…])["'”’»)\]]*\s+(?=["'“‘«(\[]*([^\W_]))|[。！？]+["'”’」』）]*\s*"""
)
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof rev gen col lt capt sgt gov sen rep hon st jr sr mt ft vs etc cf ca al eg ie"
    " e.g i.e viz fig figs eq eqs sec nos vol vols ed eds pp ch op approx inc ltd co corp dept est u.s u.k".split()
)


def split_sentences(line: str) -> list[str]:
    """A paragraph's sentences: parted at stops, but not after abbreviations or before small letters."""
    if len(line) > LONGEST_LINE // 10:  # bounds the work on a line without any stop
        return [
            sentence for part in cap(line, LONGEST_LINE // 10) for sentence in split_sentences(part)
        ]
    result, start = [], 0
    for match in STOP.finditer(line):
        if ends_sentence(line, start, match.start(), match[1]):
            result += cap(line[start : match.end()].rstrip())
            start = match.end()
    return result + cap(line[start:].strip())


def ends_sentence(line: str, start: int, stop: int, following: str | None) -> bool:
    """Whether the sentence from `start` ends at `stop`; `following` is the first letter after it."""
    if following is None:  # a Chinese or Japanese stop
        return True
    if following.islower():
        return False
    if line[stop] != ".":
        return True
    # Forty characters back are enough for any abbreviation.
    word = line[max(start, stop - 40) : stop].rpartition(" ")[2].lstrip("(\"'“‘[")
    if word.lower() == "no":
        return not following.isdigit()
    initial = len(word) == 1 and word.isupper() and word != "I"
    return not initial and word.lower() not in ABBREVIATIONS


def cap(sentence: str, longest: int = LONGEST_SENTENCE) -> list[str]:
    """The sentence, in parts if it is too long: cut after a space where there is one."""
    parts = []
    while len(sentence) > longest:
        cut = sentence.rfind(" ", 1, longest + 1)
        cut = cut if cut > 0 else longest
        parts.append(sentence[:cut].rstrip())
        sentence = sentence[cut:].lstrip()
    return parts + [sentence] if sentence else parts


# --- pydocs ---------------------------------------------------------------------------------------

# This project's dependencies, and Keras, which comes with TensorFlow; documents are in this order.
PACKAGES = tuple(
    "jax flax optax orbax ml_collections numpy tensorflow keras tokenizers tqdm tensorboardX".split()
)
# Folders whose docstrings are few, or copies of other packages'.
SKIPPED = frozenset(
    "test tests testing site-packages __pycache__ _vendor idlelib lib2to3 turtledemo".split()
)
LEAST = 300  # characters; shorter docstrings are left out


def pydocs_files() -> list[list[Path]]:
    """Python files of the standard library and of PACKAGES, in groups of about two megabytes."""
    roots = [Path(sysconfig.get_path("stdlib"))]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)  # of a top-level name: imports nothing
        roots += map(Path, (spec.submodule_search_locations or []) if spec else [])
    groups, size = [[]], 0
    for path in (path for root in roots for path in python_files(root)):
        groups[-1].append(path)
        size += path.stat().st_size
        if size > 2 << 20:
            groups.append([])
            size = 0
    return groups


def python_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in SKIPPED and path.name.isidentifier():
            yield from python_files(path)
        elif path.suffix == ".py" and not path.name.endswith("_test.py"):
            yield path


def pydocs_text(paths: list[Path]) -> bytes:
    """The documents of some Python files: a paragraph a line, a blank line after each document."""
    documents = []
    for path in paths:
        read = topics if path.match("pydoc_data/topics.py") else docstrings
        try:
            found = read(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # a file that this Python cannot read
        documents += ["\n".join(paragraphs(text)) for text in found]
    documents = (document for document in documents if len(document) >= LEAST)
    # A docstring can spell half a surrogate pair, which no encoding has.
    return "".join(f"{document}\n\n" for document in documents).encode(errors="ignore")


def parse(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's escape sequences
        return ast.parse(source)


def topics(source: bytes) -> list[str]:
    """The entries of pydoc's help texts: the chapters of the language reference."""
    assignment = next(node for node in parse(source).body if isinstance(node, ast.Assign))
    return list(ast.literal_eval(assignment.value).values())


def docstrings(source: bytes) -> list[str]:
    """Of the module and of all its classes and functions."""
    if b'"""' not in source and b"'''" not in source:
        return []
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for node in ast.walk(parse(source)) if isinstance(node, kinds))
    return [text for node in nodes if (text := ast.get_docstring(node))]


PARAGRAPH_BREAK = re.compile(r"\n[ \t]*\n")


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a docstring, a line each; examples of the interpreter are left out."""
    lines = (" ".join(part.split()) for part in PARAGRAPH_BREAK.split(text) if ">>>" not in part)
    return [line for line in lines if line]


def write_pydocs(path: Path, run: Callable) -> None:
    """Writes the corpus as text of the format `lines`; `run` maps a function over items, in order."""
    with open(path, "wb") as file:
        for text in run(pydocs_text, pydocs_files()):
            file.write(text)
