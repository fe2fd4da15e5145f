"""Encoded documents on disk on their way into a store: a shard file for each block of text.

A shard is an .npz file, whose arrays NumPy checks by CRC-32 as it reads them:

    header        JSON: counts, problems
    tokens        uint16 or uint32[T]
    sentences     uint32[S]      tokens of each sentence, never 0
    documents     uint32[D]      sentences of each document, never 0
    text_hashes   uint64[D, 2]   of each document's text

It takes its name when it is whole; what a power cut has left of it is found as it is read.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.errors import Unfinished
from bert_jax.storage import atomic


class Shard(NamedTuple):
    path: Path
    source: int  # its number in the config

    def write(self, header: dict, arrays: dict[str, np.ndarray]) -> None:
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with atomic.file(self.path, sync=False) as file:
            np.savez(file, header=text, **arrays)

    def read(self, *names: str) -> list[np.ndarray]:
        """The arrays of these names. Raises Unfinished, and deletes the file, where it is damaged."""
        try:
            with open(self.path, "rb") as opened, np.load(opened) as file:
                return [file[name] for name in names]
        except Exception as error:  # of NumPy and zipfile
            self.path.unlink(missing_ok=True)
            raise Unfinished(f"{self.path}: damaged, and deleted now ({error})") from None

    def header(self) -> dict:
        return json.loads(bytes(self.read("header")[0]))
