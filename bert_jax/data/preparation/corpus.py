"""The corpus: the sources in `config.corpus.source`, each read in its own format.

A source is read in blocks of about a megabyte that hold whole documents. One process cuts the blocks, which is cheap;
many processes turn them into sentences, by `documents`.

Documents are held out by the hash of their text, or by their position: those after `heldout_start` of a source.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.checks import heldout_sources, source_names, sources, split_list
from bert_jax.data import download
from bert_jax.data.sources import encodings, files, mds, parquet, pydocs, tables, text
from bert_jax.data.sources.problems import add_problem, describe, numbers_of
from bert_jax.data.sources.sentences import cap, ends_with_stop, split_sentences
from bert_jax.data.sources.text import Reading
from bert_jax.errors import BadInput

PROBE = 1 << 16  # bytes of a file whose format is checked before any work
# Lines at the beginning of a file that are not UTF-8, from which on it is refused: their number and share.
MAX_BAD_LINES = 5
MAX_BAD_SHARE = 0.05
# Files of which an error says what is wrong, at most.
MAX_FILES_NAMED = 5
MAX_ROWS = 100  # that are read to check a file
# Those of the formats whose rows are read here, not by a worker.
READERS = {
    "csv": tables.texts,
    "tsv": tables.texts,
    "json": tables.texts,
    "parquet": parquet.texts,
    "mds": mds.texts,
}
# How a file of a format begins, and one that is of none.
SIGNS = {
    "wiki": rb"<doc ",
    "jsonl": rb'\{\s*"',
    "json (an array)": rb'\[\s*(\{|"[^"\n]*",)',
}


class TextBlock(NamedTuple):
    """Texts of whole documents of a source."""

    reading: Reading
    texts: list[bytes]
    # characters before the first that is held out, of the documents after the filters: 0 if all are held out, inf if
    # none is; None: held out by hash
    trained: float | None = None

    @property
    def size(self) -> int:
        """The number of bytes of text."""
        return sum(map(len, self.texts))


class Source(NamedTuple):
    """One entry of `config.corpus.source`."""

    name: str  # as in the config
    reading: Reading
    title: str = ""  # what the config calls it, for mixtures
    # the name, version, split and number of examples of a library's data set; {} before `materialize`
    data_set: dict = {}
    paths: tuple[Path, ...] = ()
    refused: dict[Path, str] = {}  # {one of `paths` that cannot be used, and is left out: why}
    # the block with the first character that is held out, and the characters before it there; None: held out by hash
    heldout_start: tuple[float, float] | None = None

    def identify(self, run: Callable) -> dict:
        """Identifies the text by its content, or the data set; see `files.identify`."""
        return self.data_set or files.identify(self.paths, run)

    def texts(self, problems: Counter) -> Iterator[bytes]:
        """Yields texts of whole documents; counts dropped lines in `problems`."""
        if library := tables.library_of(self.name):
            yield from library.texts(self.name, self.reading.field)
        for path in self.paths:
            if path in self.refused:
                add_problem(problems, files.REFUSED, path.stat().st_size)
                continue
            if not path.stat().st_size:
                problems[files.EMPTY] += 1
            reader = READERS.get(self.reading.form, files.texts)
            yield from reader(path, self.reading, problems)

    def blocks(self, problems: Counter) -> Iterator[TextBlock]:
        """Yields the source's text in blocks, the same at every call; counts dropped lines in `problems`."""
        texts = []
        size = 0
        number = 0
        for piece in self.texts(problems):
            texts.append(piece)
            size += len(piece)
            if size >= files.PIECE:
                yield TextBlock(self.reading, texts, self.trained(number))
                texts = []
                size = 0
                number += 1
        if texts:
            yield TextBlock(self.reading, texts, self.trained(number))

    def trained(self, number: int) -> float | None:
        """Returns the `trained` of the block with this number."""
        if self.heldout_start is None:
            return None
        block, characters = self.heldout_start
        if number == block:
            return characters
        return math.inf if number < block else 0


# --- From the config to sources -------------------------------------------------------------------


def open_sources(config) -> list[Source]:
    """Returns the sources in the order of the config. Raises BadInput for every error that a quick check can find."""
    names = sources(config)
    titles = source_names(config) + [""] * len(heldout_sources(config))
    formats = itertools.cycle(split_list(config.corpus.format))  # one, or one for each source
    try:
        opened = [
            open_source(config, name, form)._replace(title=title)
            for name, form, title in zip(names, formats, titles, strict=False)
        ]
    except OSError as error:  # BadInput is right here: no work can be lost yet
        raise BadInput(f"config.corpus.source: cannot be read ({error})") from None
    reasons = [reason for each in opened for reason in each.refused.values()]
    if reasons and not config.filter.unusable_files:
        raise BadInput(
            f"config.corpus.source: unusable files ({len(reasons):,}), such as {'; '.join(reasons[:MAX_FILES_NAMED])};"
            " config.filter.unusable_files=True leaves such files out, iconv -f ENCODING -t UTF-8 converts one"
        )
    return opened


def open_source(config, name: str, form: str) -> Source:
    """Returns one source; checks the format of its files. Raises BadInput or OSError."""
    field = config.corpus.field
    library = tables.library_of(name)
    sentences = "rules"
    if library:
        form = "text"
    elif name == "pydocs":
        form = "lines"
    elif form == "lines":
        sentences = "lines"
    if config.corpus.sentences != "auto":
        sentences = config.corpus.sentences
    reading = Reading(
        form,
        sentences,
        field,
        config.filter.document_characters,
        config.filter.line_stops,
        config.corpus.separator if form in ("lines", "files") and name != "pydocs" else "",
        config.corpus.map,
    )
    if library or name == "pydocs":
        return Source(name, reading)
    if form == "mds" and config.tokenizer.path:
        file = download.local_file(config.tokenizer.path)
        reading = reading._replace(tokenizer=str(file))
    paths = find_files(name, form)
    refused = {path: reason for path in paths if (reason := refusal(path, reading))}
    return Source(name, reading, paths=tuple(paths), refused=refused)


def find_files(name: str, form: str) -> list[Path]:
    """Returns the files of a source in the format `form`; of mds, the shards alone."""
    paths = files.find_files(name)
    return mds.find_shards(name, paths) if form == "mds" else paths


def refusal(path: Path, reading: Reading) -> str:
    """Returns why a file cannot be used, or ''."""
    try:
        if reader := READERS.get(reading.form):
            problems = Counter()
            texts = reader(path, reading, problems)
            usable = len([*itertools.islice(texts, MAX_ROWS)])
            check_usable(path, usable, problems, reading)
        else:
            check_file(path, reading)
    except BadInput as error:
        return str(error)
    return ""


def check_file(path: Path, reading: Reading) -> None:
    """Raises BadInput if most of the beginning of a file would be dropped, or if it looks like another format."""
    form = reading.form
    with files.open_text(path) as file:
        start = file.read(PROBE)
    files.check_text(path, start)
    problems = Counter()
    pieces = files.read_lines(path, form, problems, PROBE)
    # A second piece holds the text after the last line break.
    lines = b"".join(itertools.islice(pieces, 2))
    documents = list(text.parse(lines, Reading(form, "lines", reading.field), problems))
    usable = len(documents) if form == "jsonl" else sum(map(len, documents))
    check_encoding(path, lines, usable, problems)
    start = start.lstrip(b"\xef\xbb\xbf \t\r\n")  # with a byte order mark
    likely = next((name for name in SIGNS if re.match(SIGNS[name], start)), form)
    if form not in (likely, "files"):
        words = start[:40].decode(errors="replace").split()
        raise BadInput(
            f"{path}: begins like {likely}, not config.corpus.format={form}: {' '.join(words)}"
        )
    check_usable(path, usable, problems, reading)


def check_usable(
    path: Path,
    usable: int,
    problems: Counter,
    reading: Reading,
) -> None:
    """Raises BadInput if a file has fewer usable lines or records than others."""
    if usable < sum(numbers_of(problems).values()):
        keys = f"config.corpus.format={reading.form}, config.corpus.field={reading.field}"
        raise BadInput(f"{path}: begins with {describe(problems)} ({keys})")


def check_encoding(path: Path, lines: bytes, usable: int, problems: Counter) -> None:
    """Raises BadInput if too many lines at the beginning of a file are not UTF-8.

    usable: the number of lines, or of records, without problems.
    """
    bad = problems[text.NOT_UTF8] + problems[text.WITH_NUL]
    if bad > MAX_BAD_SHARE * (usable + bad) and (not usable or bad >= MAX_BAD_LINES):
        share = f"{bad / (usable + bad):.0%} of its beginning"
        likely = " or ".join(encodings.likely_encodings(lines))
        raise BadInput(f"{path}: {share} is not UTF-8 but probably {likely or 'no text'}")


def materialize(source: Source, directory: Path, run: Callable) -> Source:
    """Makes a source readable: writes pydocs to a text file in `directory`, downloads a data set; returns the source.

    run: maps a function over items, in order.

    Raises BadInput if a data set is not available.
    """
    if library := tables.library_of(source.name):
        identity = library.identify(source.name, source.reading.field)
        return source._replace(data_set=identity)
    if source.name != "pydocs":
        return source
    path = Path(directory) / "pydocs.txt"
    with open(path, "wb") as file:
        file.writelines(run(pydocs.pydocs_text, pydocs.pydocs_files()))
    return source._replace(paths=(path,))


def set_heldout_starts(config, sources: list[Source], run: Callable) -> list[Source]:
    """Returns the sources with their `heldout_start`, if documents are held out by their position.

    run: maps a function over blocks, in order. It counts the characters of all, if the end of the text is held out:
        int((1 - heldout) * characters) are trained on.
    """
    trained = len(sources) - len(heldout_sources(config))
    if trained < len(sources):
        starts = [(math.inf, 0)] * trained + [(0, 0)] * (len(sources) - trained)
    elif config.corpus.heldout_by == "hash":
        return sources
    else:
        counts = [run(count_characters, source.blocks(Counter())) for source in sources]
        sizes = [np.cumsum([0, *each]) for each in counts]
        left = int((1 - config.corpus.heldout) * sum(int(ends[-1]) for ends in sizes))
        starts = []
        for ends in sizes:
            block = int(np.searchsorted(ends, left, "right")) - 1
            starts.append((block, left - int(ends[block])))
            left = max(0, left - int(ends[-1]))
    return [
        source._replace(heldout_start=start) for source, start in zip(sources, starts, strict=True)
    ]


# --- From a block to sentences --------------------------------------------------------------------


def count_characters(block: TextBlock) -> int:
    """Runs in a worker: returns the number of characters of the documents of a block, after the filters."""
    return int(sum(map(characters, documents(block, Counter()))))


def characters(document: list[str]) -> int:
    """Returns the number of characters of the sentences of a document."""
    return sum(map(len, document))


def documents(block: TextBlock, problems: Counter) -> list[list[str]]:
    """Returns the documents of a block as lists of sentences, after the filters; a document may be empty.

    A document with exact text is a single sentence. If the first character that is held out is inside of it, it is cut
    there.

    problems: counts what is dropped, by reason; see problems.py.
    """
    reading = block.reading
    split = SPLITTERS[reading.sentences]
    documents = []
    for piece in block.texts:
        for lines in text.parse(piece, reading, problems):
            if reading.line_stops:
                lines = keep_stops(lines, problems)
            if characters(lines) < reading.document_characters:
                reason = f"documents under {reading.document_characters} characters"
                add_problem(problems, reason, len("".join(lines).encode()))
                continue
            documents.append([sentence for line in lines for sentence in split(line)])
    if reading.sentences == "none" and block.trained:
        return split_document(documents, block.trained)
    return documents


SPLITTERS = {
    "lines": cap,
    "rules": split_sentences,
    "wrapped": split_sentences,
    "none": lambda line: [line],
}


def split_document(documents: list[list[str]], trained: float) -> list[list[str]]:
    """Returns documents with exact texts, of which one is cut in two unless it ends after the first `trained`
    characters."""
    parts = []
    for document in documents:
        size = characters(document)
        if 0 < trained < size:
            [text] = document
            parts.append([text[:trained]])
            document = [text[trained:]]
        parts.append(document)
        trained -= size
    return parts


def heldout_by_position(block: TextBlock, documents: list[list[str]]) -> np.ndarray:
    """Returns bool[D]: whether each of the documents that have sentences is held out by its position."""
    ends = np.cumsum([characters(document) for document in documents if document])
    return ends > (math.inf if block.trained is None else block.trained)


def keep_stops(lines: list[str], problems: Counter) -> list[str]:
    """Returns the lines that end with a sentence stop; counts the others."""
    complete = []
    for line in lines:
        if ends_with_stop(line):
            complete.append(line)
        else:
            add_problem(problems, "lines without a stop", len(line.encode()))
    return complete
