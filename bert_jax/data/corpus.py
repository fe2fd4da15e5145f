"""The corpus: the sources in `config.corpus.source`, each read in its own format.

A source is read in blocks of about a megabyte that hold whole documents. One process cuts the blocks, which is cheap;
many processes turn them into sentences, by `documents`.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from bert_jax import config as configs
from bert_jax.data.sources import encodings, files, hf, parquet, pydocs, text, tfds
from bert_jax.data.sources.problems import add_problem, describe, numbers_of
from bert_jax.data.sources.sentences import cap, ends_with_stop, split_sentences
from bert_jax.errors import BadInput

BLOCK = 1 << 20  # bytes of text per task, about
PROBE = 1 << 16  # bytes of a file whose format is checked before any work
# Lines at the beginning of a file that are not UTF-8, from which on it is refused: their number and share.
MOST_BAD_LINES, MOST_BAD_SHARE = 5, 0.05
# How a file of a format begins, and one that is of none.
SIGNS = {"wiki": rb"<doc ", "jsonl": rb'\{\s*"', "a JSON array": rb'\[\s*(\{|"[^"\n]*",)'}


class Reading(NamedTuple):
    """How the text of a source is parsed into sentences. Small and picklable: workers get it with every block."""

    form: str  # format: lines, files, wiki, jsonl or parquet; text for a library's data set
    sentences: str  # lines or rules
    field: str = "text"  # key of the text, for jsonl; column, for parquet
    document_characters: int = 0  # shorter documents are left out
    line_stops: bool = False  # whether lines that do not end with a sentence stop are left out


class Block(NamedTuple):
    """Texts of whole documents of a source."""

    reading: Reading
    texts: list[bytes]


class Source(NamedTuple):
    """One entry of `config.corpus.source`."""

    name: str  # as in the config
    reading: Reading
    # the name, version, split and number of examples of a library's data set; {} if unknown before `materialize`
    data_set: dict = {}
    paths: tuple[Path, ...] = ()

    def identify(self, run: Callable) -> dict:
        """Identifies the text by its content, or the data set; see `files.identify`."""
        return self.data_set or files.identify(self.paths, run)

    def texts(self, problems: Counter) -> Iterator[bytes]:
        """Yields texts of whole documents; counts dropped lines in `problems`."""
        if library := library_of(self.name):
            yield from library.texts(self.name, self.reading.field)
        for path in self.paths:
            if not path.stat().st_size:
                problems[files.EMPTY] += 1
            if self.reading.form == "parquet":
                yield from parquet.texts(path, self.reading.field)
            else:
                yield from files.texts(path, self.reading.form, problems, BLOCK)

    def blocks(self, problems: Counter) -> Iterator[Block]:
        """Yields the source's text in blocks, the same at every call; counts dropped lines in `problems`."""
        block, size = [], 0
        for piece in self.texts(problems):
            block.append(piece)
            size += len(piece)
            if size >= BLOCK:
                yield Block(self.reading, block)
                block, size = [], 0
        if block:
            yield Block(self.reading, block)


# --- From the config to sources -------------------------------------------------------------------


def open_sources(config) -> list[Source]:
    """Returns the sources in the order of the config. Raises BadInput for every error that a quick check can find."""
    named = zip(configs.sources(config), configs.formats(config), strict=True)
    try:
        return [open_source(config, name, form) for name, form in named]
    except OSError as error:  # BadInput is right here: no work can be lost yet
        raise BadInput(f"config.corpus.source: cannot be read ({error})") from None


def library_of(name: str) -> ModuleType | None:
    """Returns the module for a source that is a data set of a library; None for other sources."""
    return next((module for module in (tfds, hf) if name.startswith(module.PREFIX)), None)


def open_source(config, name: str, form: str) -> Source:
    """Returns one source; checks the format of its files, or that its data set exists. Raises BadInput or OSError."""
    library, keys = library_of(name), config.corpus
    form = "lines" if name == "pydocs" else "text" if library else form
    auto = "lines" if form == "lines" and name != "pydocs" else "rules"
    sentences = auto if keys.sentences == "auto" else keys.sentences
    filters = config.filter.document_characters, config.filter.line_stops
    reading = Reading(form, sentences, keys.field, *filters)
    if library or name == "pydocs":
        return Source(name, reading, library.identify(name, keys.field) if library else {})
    paths = files.find_files(name)
    for path in paths:
        if form == "parquet":
            parquet.check(path, keys.field)
        else:
            check_format(path, reading)
    return Source(name, reading, paths=tuple(paths))


def check_format(path: Path, reading: Reading) -> None:
    """Raises BadInput if most of the beginning of a file would be dropped, or if it looks like another format."""
    problems = Counter()
    with files.open_text(path) as file:
        begin = file.read(PROBE)
    if files.ARCHIVE.match(begin):
        hint = "an archive, or compressed in a way that its name does not say; unpack it"
        raise BadInput(f"config.corpus.source: {path}: {hint}")
    pieces = files.read_lines(path, reading.form, problems, PROBE)
    # A second piece holds the text after the last line break.
    first = b"".join(itertools.islice(pieces, 2))
    parsed = list(text.parse(first, reading.form, reading.field, problems))
    kept = len(parsed) if reading.form == "jsonl" else sum(map(len, parsed))
    _, escaped = encodings.escaped_lines(first)
    bad = problems[text.NOT_UTF8] + problems[text.WITH_NUL] + escaped
    good = max(0, kept - escaped)
    if bad > MOST_BAD_SHARE * (good + bad) and (not good or bad >= MOST_BAD_LINES):
        share = f"{bad / (good + bad):.0%} of its beginning"
        likely = encodings.likely_encoding(first)
        raise BadInput(f"config.corpus.source: {path}: {share} is {likely}")
    begin = begin.lstrip(b"\xef\xbb\xbf \t\r\n")  # with a byte order mark
    likely = next((form for form in SIGNS if re.match(SIGNS[form], begin)), reading.form)
    if reading.form == "wiki" and begin and not re.search(SIGNS["wiki"], first):
        likely = "a text without <doc>"
    if reading.form not in (likely, "files"):
        start = " ".join(begin[:40].decode(errors="replace").split())
        raise BadInput(f"config.corpus.format={reading.form}: {path} begins like {likely}: {start}")
    if kept < sum(numbers_of(problems).values()) - problems[text.SURROGATE]:
        reasons = describe(problems)
        if "without" in reasons:
            reasons += "; set config.corpus.field"
        raise BadInput(f"config.corpus.format={reading.form}: {path} begins with {reasons}")


def materialize(source: Source, directory: Path, run: Callable) -> Source:
    """Makes a source readable: writes pydocs to a text file in `directory`, downloads a data set; returns the source.

    run: maps a function over items, in order. Raises BadInput if a data set is not available.
    """
    if library := library_of(source.name):
        identity = library.identify(source.name, source.reading.field, prepare=True)
        return source._replace(data_set=identity)
    if source.name != "pydocs":
        return source
    path = Path(directory) / "pydocs.txt"
    with open(path, "wb") as file:
        file.writelines(run(pydocs.pydocs_text, pydocs.pydocs_files()))
    return source._replace(paths=(path,))


# --- From a block to sentences --------------------------------------------------------------------


def documents(block: Block, problems: Counter) -> list[list[str]]:
    """Returns the documents of a block as lists of sentences, after the filters; a document may be empty.

    problems: counts what is dropped, by reason; see problems.py.
    """
    reading = block.reading
    split = cap if reading.sentences == "lines" else split_sentences
    result = []
    for piece in block.texts:
        for lines in text.parse(piece, reading.form, reading.field, problems):
            if reading.line_stops:
                lines = list(keep_stops(lines, problems))
            if sum(map(len, lines)) < reading.document_characters:
                reason = f"documents under {reading.document_characters} characters"
                add_problem(problems, reason, len("".join(lines).encode()))
            else:
                result.append([sentence for line in lines for sentence in split(line)])
    return result


def keep_stops(lines: list[str], problems: Counter) -> Iterator[str]:
    """Yields the lines that end with a sentence stop; counts the others."""
    for line in lines:
        if ends_with_stop(line):
            yield line
        else:
            add_problem(problems, "lines without a stop", len(line.encode()))
