"""Where the texts of a corpus lie: every file read once, by any process, so that others can read any part of it.

Files that are read as they lie stay where they are; the texts of compressed files, of data sets, and of files of which
something is left out are written one after the other in the working directory.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.sources import files, tfds
from bert_jax.storage import atomic

# Bytes of files that a worker reads at a time, at least; a file is read by one worker.
PART = 64 << 20


class Span(NamedTuple):
    """Consecutive texts of a file."""

    path: Path
    offset: int
    sizes: np.ndarray  # int64[N]  bytes of each


Block = list[Span]  # of a corpus.Block: where its texts lie


class Part(NamedTuple):
    """What a worker reads: some files of a source, or a data set."""

    number: int
    form: str
    size: int  # bytes of a piece of a file, about
    paths: tuple[Path, ...]
    dataset: tfds.Dataset | None


class Texts(NamedTuple):
    """All texts of a source, in order."""

    source: corpus.Source
    spans: list[Span]

    def blocks(self) -> Iterator[Block]:
        """Blocks of the same texts as those of `Source.blocks`."""
        block, size = [], 0
        for path, offset, sizes in self.spans:
            first, start = 0, offset
            for number, length in enumerate(sizes.tolist()):
                size += length
                offset += length
                if size >= corpus.BLOCK:
                    yield [*block, Span(path, start, sizes[first : number + 1])]
                    block, size, first, start = [], 0, number + 1, offset
            if first < len(sizes):
                block.append(Span(path, start, sizes[first:]))
        if block:
            yield block


def read(block: Block) -> corpus.Block:
    return [text for span in block for text in files.read_texts(*span)]


def length(block: Block) -> int:
    """Bytes."""
    return sum(int(span.sizes.sum()) for span in block)


def cut_all(
    sources: list[corpus.Source], directory: Path, run: Callable
) -> tuple[list[Texts], Counter]:
    """The texts of each source, and what is no text in itself, counted by its reason. BadInput for damaged files."""
    parts = [list(parts_of(source)) for source in sources]
    numbered = [part._replace(number=n) for n, part in enumerate(p for of in parts for p in of)]
    results = run(functools.partial(cut, directory), numbered)
    texts, problems = [], Counter()
    for source, of_source in zip(sources, parts, strict=True):
        spans = []
        for _ in of_source:
            found, counted = next(results)
            spans += found
            problems.update(counted)
        texts.append(Texts(source, spans))
    return texts, problems


def parts_of(source: corpus.Source) -> Iterator[Part]:
    part = Part(0, source.reading.form, corpus.BLOCK, (), source.dataset)
    if source.dataset:
        yield part
    paths, size = [], 0
    for path in source.paths:
        paths.append(path.absolute())  # workers may be in other directories
        size += path.stat().st_size
        if size >= PART:
            yield part._replace(paths=tuple(paths))
            paths, size = [], 0
    if paths:
        yield part._replace(paths=tuple(paths))


def cut(directory: Path, part: Part) -> tuple[list[Span], Counter]:
    """Runs in a worker: (where each file's texts lie, what is wrong with them)."""
    problems, spans = Counter(), []
    if part.dataset:
        texts = tfds.texts(part.dataset, files.LONGEST_DOCUMENT, problems)
        spans.append(written(directory / f"{part.number:06d}.text", texts))
    for number, path in enumerate(part.paths):
        found = Counter()
        span = as_it_lies(path, part, found)
        if not span:
            found.clear()
            texts = files.texts(path, part.form, found, part.size)
            span = written(directory / f"{part.number:06d}-{number:06d}.text", texts)
        spans.append(span)
        problems.update(found)
    return spans, problems


def as_it_lies(path: Path, part: Part, problems: Counter) -> Span | None:
    """The texts of a plain file, if they are all of it."""
    if path.suffix.lower() in files.OPENERS:
        return None
    sizes = [len(text) for text in files.texts(path, part.form, problems, part.size)]
    return Span(path, 0, np.array(sizes, np.int64)) if sum(sizes) == path.stat().st_size else None


def written(path: Path, texts: Iterable[bytes]) -> Span:
    with atomic.file(path, sync=False) as file:
        sizes = [file.write(text) for text in texts]
    return Span(path, 0, np.array(sizes, np.int64))
