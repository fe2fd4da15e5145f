"""Where documents come from: the parts of `config.corpus.source`, each read in its own format.

A source is read as blocks: lists of texts (bytes) that together are about a megabyte and hold whole
documents. Cutting blocks is cheap and done by one process; `documents` turns a block into sentences
and is done by many.
"""

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax import config as configs
from bert_jax.data.sources import files, pydocs, text, tfds
from bert_jax.data.sources.filters import NONE, Filters
from bert_jax.data.sources.sentences import cap, split_sentences
from bert_jax.errors import BadInput
from bert_jax.storage.checksums import digest

BLOCK = 1 << 20  # bytes of text that are worked on together, about
# How files of a format begin, and no others of text.
SIGNS = {"wiki": re.compile(rb"<doc "), "jsonl": re.compile(rb'\{\s*"')}

Block = list[bytes]


class Reading(NamedTuple):
    """How text of one source becomes sentences; small and picklable: it travels to the workers with every block."""

    form: str  # lines, files, wiki, jsonl; text: each text is a document
    sentences: str  # lines or rules
    field: str = "text"  # of jsonl
    filters: Filters = NONE


class Source(NamedTuple):
    """One part of `config.corpus.source`."""

    name: str  # as spelt in the config
    reading: Reading
    # {"files", "bytes", "sha256"}, of a data set {"name", "version", "split", "examples"}; {} until
    # `materialize` where it is not known before
    files_read: dict
    paths: tuple[Path, ...] = ()
    dataset: tfds.Dataset | None = None

    def blocks(self, problems: Counter) -> Iterator[Block]:
        """The source's text, the same blocks at every call; what is no text in itself is counted in `problems`."""
        if self.dataset:
            return pack(tfds.texts(self.dataset))
        found = (files.texts(path, self.reading.form, problems, BLOCK) for path in self.paths)
        return pack(piece for pieces in found for piece in pieces)


def pack(texts: Iterable[bytes]) -> Iterator[Block]:
    block, size = [], 0
    for piece in texts:
        block.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


# --- From the config to sources -------------------------------------------------------------------


def open_sources(config) -> list[Source]:
    """The sources in the order of the config. BadInput for all that can be known to be wrong before any work."""
    named = zip(configs.sources(config), configs.formats(config), strict=True)
    try:
        return [open_source(config, name, form) for name, form in named]
    except OSError as error:  # no work is lost yet
        raise BadInput(
            f"config.corpus.source: {error.filename}: cannot be read ({error.strerror})"
        ) from None


def open_source(config, name: str, form: str) -> Source:
    keys = config.filter
    filters = Filters(
        keys.document_characters, keys.line_characters, keys.line_symbols, keys.line_stops
    )
    if name == "pydocs":
        form = "lines"
    elif name.startswith(tfds.PREFIX):
        form = "text"
    sentences = config.corpus.sentences
    if sentences == "auto":
        sentences = "lines" if form == "lines" and name != "pydocs" else "rules"
    reading = Reading(form, sentences, config.corpus.field, filters)
    if name == "pydocs":
        return Source(name, reading, {})
    if name.startswith(tfds.PREFIX):
        dataset = tfds.open_dataset(name, config.corpus.field, config.corpus.data_dir)
        return Source(name, reading, tfds.what_is_read(dataset), dataset=dataset)
    paths = files.find_files(name)
    for path in paths:
        check_form(path, reading)
    return Source(name, reading, files.files_read(paths), tuple(paths))


def check_form(path: Path, reading: Reading) -> None:
    """Refuses a text file whose first lines speak for another format, or have no text under the field."""
    pieces = files.read_lines(path, Counter(), files.LONGEST_RECORD)
    first = b"".join(itertools.islice(pieces, 2))  # what follows the last line break comes apart
    first, form = first.removeprefix(codecs.BOM_UTF8).lstrip(), reading.form
    looks = next((other for other, sign in SIGNS.items() if sign.match(first)), "lines")
    if looks != form and first and (looks != "lines" or form == "wiki"):
        line = first.split(b"\n")[0][:40].decode(errors="replace")
        raise BadInput(
            f"config.corpus.format={form}: {path} begins like a file of the format {looks}: {line.rstrip()}"
        )
    found = text.records(first, reading.field, Counter())
    if form == "jsonl" and first and next(found, None) is None:
        raise BadInput(
            f"{path}: no line with a text under config.corpus.field={reading.field!r} at its beginning"
        )


def materialize(source: Source, directory: Path, run: Callable) -> Source:
    """The source, ready to be read: pydocs as a text file in `directory`, a data set downloaded; others as they are.

    `run` maps a function over items, in order. Raises BadInput for a data set that cannot be had.
    """
    if source.dataset:
        return source._replace(files_read=tfds.what_is_read(source.dataset, prepare=True))
    if source.name != "pydocs":
        return source
    path = Path(directory) / "pydocs.txt"
    pydocs.write_pydocs(path, run)
    known = {"files": 1, "bytes": path.stat().st_size, "sha256": digest(path)}
    return source._replace(paths=(path,), files_read=known)


# --- From a block to sentences --------------------------------------------------------------------


def documents(block: Block, reading: Reading, problems: Counter) -> list[list[str]]:
    """The documents of a block as lists of sentences; a document may turn out empty."""
    split = cap if reading.sentences == "lines" else split_sentences
    result = []
    for piece in block:
        for lines in text.parse(piece, reading.form, reading.field, problems):
            if reading.filters != NONE:
                lines = reading.filters.keep(lines, problems)
            if lines is not None:
                result.append([sentence for line in lines for sentence in split(line)])
    return result
