"""Encoded documents on disk on their way into a store: shard files, each of some consecutive blocks of one source.

A shard is an .npz file, whose arrays NumPy checks by CRC-32 as it reads them:

    header        JSON: vocabulary, counts, problems
    tokens        uint16 or uint32[T]
    sentences     uint32[S]      tokens of each sentence, never 0
    documents     uint32[D]      sentences of each document, never 0
    text_hashes   uint64[D, 2]   of each document's text

It takes its name when it is whole and on the disk, so whatever is killed, what has a name can be read.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.storage import atomic

BLOCKS = 4  # blocks in a shard, about 4 MB of text: what a worker does at a time
ARRAYS = ("tokens", "sentences", "documents", "text_hashes")


class Damaged(Exception):
    """A shard file that is not what was written."""


class Shard(NamedTuple):
    """A shard on the disk."""

    path: Path
    source: int  # its number in the config
    header: dict

    def read(self, *names: str) -> list[np.ndarray]:
        return read(self.path, *names)[1]


def write(path: Path, header: dict, arrays: dict[str, np.ndarray]) -> None:
    """A shard file, whole and on the disk when it gets its name; `header` is plain data."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with atomic.file(path) as file:
        np.savez(file, header=text, **arrays)


def read(path: Path, *names: str) -> tuple[dict, list[np.ndarray]]:
    """(header, arrays of these names). Raises Damaged, and FileNotFoundError."""
    try:
        with open(path, "rb") as opened, np.load(opened) as file:
            return json.loads(bytes(file["header"])), [file[name] for name in names]
    except FileNotFoundError:
        raise
    except Exception as error:  # of NumPy and zipfile, which raise what they like
        raise Damaged(f"{path}: damaged ({error})") from None
