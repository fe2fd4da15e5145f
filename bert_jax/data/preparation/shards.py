"""Shard files: the encoded documents of one block of text, kept on disk until the store is written.

A shard is an .npz file. NumPy verifies the CRC-32 of each array that it reads:

    header        JSON: counts, problems
    tokens        uint16 or uint32[T]
    sentences     uint32[S]      tokens of each sentence, never 0
    documents     uint32[D]      sentences with tokens, of each document with text
    text_hashes   uint64[D, 2]   of each document's text
    is_heldout    bool[D]        whether each document is held out by its position

A shard file is renamed into place when it is complete. Damage after a power cut is detected when the file is read.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.errors import Unfinished
from bert_jax.storage import atomic


class Shard(NamedTuple):
    """The path of a shard file, and the source that its documents come from."""

    path: Path
    source: int  # index in config.corpus.source

    @property
    def parsed(self) -> "Shard":
        """The documents and problems of the block, before it is encoded, in the header of another file."""
        return Shard(self.path.parents[1] / "documents" / self.path.name, self.source)

    def write(self, header: dict, **arrays: np.ndarray) -> None:
        header = np.frombuffer(json.dumps(header, ensure_ascii=False).encode(), np.uint8)
        with atomic.file(self.path, sync=False) as file:
            np.savez(file, header=header, **arrays)

    def read(self, *names: str) -> list[np.ndarray]:
        """Returns the named arrays. If the file is damaged, deletes it and raises Unfinished."""
        try:
            with open(self.path, "rb") as file, np.load(file) as arrays:
                return [arrays[name] for name in names]
        except Exception as error:  # NumPy and zipfile raise many types
            self.path.unlink(missing_ok=True)
            raise Unfinished(f"{self.path}: damaged, deleted; start again ({error})") from None

    def header(self) -> dict:
        [header] = self.read("header")
        return json.loads(bytes(header))
