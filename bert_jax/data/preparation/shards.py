"""Encoded documents on disk on their way into a store: shard files, each of some consecutive blocks of one source.

A shard file is one line, a CRC-32 and a JSON header, and then its arrays' bytes, each with a CRC-32 of its own:

    tokens            uint16 or uint32[T]
    sentences         uint32[S]      tokens of each sentence, never 0
    documents         uint32[D]      sentences of each document, never 0
    hashes            uint64[D, 2]   of each document's ids
    sentence_hashes   uint64[S]      of each sentence's ids
    signatures        uint32[D, 128] where near duplicates are looked for

It takes its name when it is whole and on the disk, so whatever is killed, what has a name can be read.
"""

import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparation.workplace import whole_file

BLOCKS = 4  # blocks in a shard, about 4 MB of text: what a worker does at a time
GROUP = 64  # shards that are filtered together, at least: about 256 MB of text
GROUPS = 1024  # at most, so that what is sorted is not in too many parts


class Damaged(Exception):
    """A shard file that is not what was written."""


def write(path: Path, arrays: dict[str, np.ndarray], header: dict) -> None:
    """A shard file, whole and on the disk when it gets its name; `header` is plain data."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    table = {
        name: [array.dtype.str, array.shape, zlib.crc32(array)] for name, array in arrays.items()
    }
    line = json.dumps(header | {"arrays": table}).encode()
    with whole_file(path, is_kept=True) as file:
        file.write(b"%08x %b\n" % (zlib.crc32(line), line))
        for array in arrays.values():
            file.write(array)


def read(path: Path, names: list[str] | None = None) -> tuple[dict[str, np.ndarray], dict]:
    """(arrays of these names, or all; header). Raises Damaged, and FileNotFoundError."""
    with open(path, "rb") as file:
        header = read_header(file.readline(), path)
        table = header.pop("arrays")
        arrays = {}
        for name, (kind, shape, crc) in table.items():
            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            if names is not None and name not in names:
                file.seek(size, os.SEEK_CUR)
                continue
            data = file.read(size)
            if len(data) < size or zlib.crc32(data) != crc:
                raise Damaged(f"{path}: damaged ({name})")
            arrays[name] = np.frombuffer(data, kind).reshape(shape)
        if names is None and file.read(1):
            raise Damaged(f"{path}: damaged (too long)")
    return arrays, header


def read_header(line: bytes, path: Path) -> dict:
    crc, _, text = line.removesuffix(b"\n").partition(b" ")
    if crc != b"%08x" % zlib.crc32(text):
        raise Damaged(f"{path}: damaged (header)")
    return json.loads(text)


class Shard(NamedTuple):
    path: Path
    source: int
    documents: slice  # their numbers in the corpus

    def read(self, *names: str) -> list[np.ndarray]:
        arrays, _ = read(self.path, list(names))
        return [arrays[name] for name in names]


class Group(NamedTuple):
    """Some consecutive shards, which a worker filters."""

    number: int
    shards: tuple[Shard, ...]

    @property
    def start(self) -> int:
        """The number of its first document in the corpus."""
        return self.shards[0].documents.start

    @property
    def stop(self) -> int:
        return self.shards[-1].documents.stop


class Shards:
    """All shards of a corpus, in order, and what was counted on the way."""

    def __init__(self):
        self.shards: list[Shard] = []
        self.documents = 0
        self.counts, self.problems = Counter(), Counter()  # bytes, documents, empty; by reason

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.shards)

    def groups(self) -> list[Group]:
        size = max(GROUP, -(-len(self.shards) // GROUPS))
        starts = range(0, len(self.shards), size)
        parts = (tuple(self.shards[start : start + size]) for start in starts)
        return [Group(number, part) for number, part in enumerate(parts)]

    def append(self, path: Path, source: int, header: dict) -> None:
        end = self.documents + header["kept"]
        self.shards.append(Shard(path, source, slice(self.documents, end)))
        self.documents = end
        self.counts.update(header["counts"])
        self.problems.update(header["problems"])
