"""Encoded documents on disk on their way into the two splits: duplicates out, held-out documents apart.

Beside one block at a time, memory holds one byte a document and one partition of the hashes.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import store as stores
from bert_jax.errors import BadInput

PARTITIONS = 64  # files over which document hashes are spread by their first bits
TRAIN, HELDOUT, DUPLICATE = range(3)


class Encoded(NamedTuple):
    """What a worker makes of one block. Of its documents, sentences and pieces none is empty."""

    tokens: np.ndarray  # uint16 or uint32[T]
    sentences: np.ndarray  # uint32[S]  tokens of each sentence
    documents: np.ndarray  # uint32[D]  sentences of each document
    hashes: np.ndarray  # uint64[D, 2]  of the document's tokens
    counts: Counter  # bytes, empty documents
    problems: Counter  # bad lines by reason


RECORD = np.dtype([("high", np.uint64), ("low", np.uint64), ("document", np.int64)])


class Spool:
    """Encoded blocks on disk, and their documents' hashes in files by first bits."""

    def __init__(self, directory: Path, kind: np.dtype):
        self.directory = directory
        self.kinds = {
            "tokens": kind,
            "sentences": np.dtype(np.uint32),
            "documents": np.dtype(np.uint32),
        }
        self.blocks = []  # (tokens, sentences, documents) of each block
        self.documents = 0
        self.counts, self.problems = Counter(), Counter()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.files = [
                stack.enter_context(open(self.directory / name, "wb")) for name in self.kinds
            ]
            self.partitions = [
                stack.enter_context(open(path, "wb")) for path in self.partition_paths()
            ]
            self.close = stack.pop_all().close
        return self

    def __exit__(self, *error):
        self.close()

    def partition_paths(self) -> list[Path]:
        return [self.directory / f"hashes-{number:02d}" for number in range(PARTITIONS)]

    def add(self, encoded: Encoded) -> None:
        arrays = encoded.tokens, encoded.sentences, encoded.documents
        for file, array in zip(self.files, arrays, strict=True):
            file.write(array)
        records = np.zeros(len(encoded.documents), RECORD)
        records["high"], records["low"] = encoded.hashes.T
        records["document"] = self.documents + np.arange(len(records))
        partition = (records["high"] // np.uint64(2**64 // PARTITIONS)).astype(int)
        for number in np.unique(partition):
            self.partitions[number].write(records[partition == number])
        self.blocks.append(tuple(map(len, arrays)))
        self.documents += len(records)
        self.counts += encoded.counts
        self.problems += encoded.problems

    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(tokens, sentences, documents) block by block."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(self.directory / name, "rb")) for name in self.kinds]
            for sizes in self.blocks:
                yield tuple(map(np.fromfile, files, self.kinds.values(), sizes))

    def unique(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(survivors, duplicates), document numbers, a partition at a time; survivors by their hashes.

        Of equal documents the first one survives.
        """
        for path in self.partition_paths():
            records = np.fromfile(path, RECORD)
            records = records[np.lexsort((records["document"], records["low"], records["high"]))]
            same = (np.diff(records["high"]) == 0) & (np.diff(records["low"]) == 0)
            first = np.concatenate([[True], ~same])[: len(records)]
            yield records["document"][first], records["document"][~first]


def choose_splits(spool: Spool, share: float) -> np.ndarray:
    """uint8[documents]: TRAIN, HELDOUT or DUPLICATE.

    Held out are the documents with the smallest hashes: a function of content, not of order.
    """
    split = np.full(spool.documents, TRAIN, np.uint8)
    for _, duplicates in spool.unique():
        split[duplicates] = DUPLICATE
    documents = int((split == TRAIN).sum())
    if documents < 4:
        what = "no document" if not documents else f"{documents} document{'s' * (documents > 1)}"
        problems = "".join(
            f", {number} {reason}" for reason, number in sorted(spool.problems.items())
        )
        raise BadInput(
            f"corpus: {what} with text{problems}; two to train on and two held out are the least"
        )
    wanted = min(max(2, round(share * documents)), documents - 2)
    for survivors, _ in spool.unique():
        split[survivors[:wanted]] = HELDOUT
        wanted -= min(wanted, len(survivors))
        if not wanted:
            return split


class ArrayFile:
    """A one-dimensional .npy file that grows; its header is written last."""

    def __init__(self, path: Path, kind: np.dtype):
        self.kind, self.length = np.dtype(kind), 0
        self.file = open(path, "wb")
        self.write_header()

    def write_header(self) -> None:
        # NumPy leaves room for any length, so the second header takes the place of the first.
        header = {"descr": self.kind.str, "fortran_order": False, "shape": (self.length,)}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, array: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(array, self.kind))
        self.length += len(array)

    def close(self) -> None:
        self.write_header()
        self.file.close()


class SplitWriter:
    """The arrays of one split, appended to block by block."""

    def __init__(self, directory: Path, kind: np.dtype):
        directory.mkdir()
        kinds = kind, np.int64, np.int64
        self.tokens, self.sentence_ends, self.document_ends = (
            ArrayFile(directory / f"{name}.npy", kind)
            for name, kind in zip(stores.ARRAYS, kinds, strict=True)
        )

    def append(self, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> None:
        """Takes lengths of sentences and documents; writes ends."""
        self.sentence_ends.append(self.tokens.length + np.cumsum(sentences, dtype=np.int64))
        self.document_ends.append(
            self.sentence_ends.length - len(sentences) + np.cumsum(documents, dtype=np.int64)
        )
        self.tokens.append(tokens)

    def close(self) -> None:
        for array in (self.tokens, self.sentence_ends, self.document_ends):
            array.close()


def write_splits(spool: Spool, split: np.ndarray, directory: Path, vocabulary: int) -> np.ndarray:
    """Writes both splits in the order of the corpus; returns the training unigrams, int64[V]."""
    unigrams = np.zeros(vocabulary, np.int64)
    writers = [SplitWriter(directory / name, spool.kinds["tokens"]) for name in stores.SPLITS]
    start = 0
    for tokens, sentences, documents in spool.read():
        of_document = split[start : start + len(documents)]
        of_sentence = np.repeat(of_document, documents)
        of_token = np.repeat(of_sentence, sentences)
        start += len(documents)
        for number, writer in enumerate(writers):
            chosen = tokens[of_token == number]
            writer.append(
                chosen, sentences[of_sentence == number], documents[of_document == number]
            )
            if number == TRAIN:
                unigrams += np.bincount(chosen, minlength=vocabulary)
    for writer in writers:
        writer.close()
    return unigrams
