"""Shards -> the arrays of a store, in the order of the corpus, and what is counted as they are written."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import store as stores
from bert_jax.data.preparation.selection import TRAIN
from bert_jax.data.preparation.shards import Shard


class Written(NamedTuple):
    """Counts of a store's content."""

    unigrams: np.ndarray  # int64[sources, V]  of the training split
    documents: np.ndarray  # int64[sources, 2]  in train and heldout
    tokens: np.ndarray  # int64[sources, 2]


def write(
    shards: list[Shard], state: np.ndarray, sources: int, directory: Path, vocabulary: int
) -> Written:
    """Writes both splits under `directory`, by the `state` of each document; a shard at a time is in memory."""
    kind = stores.token_type(vocabulary)
    writers = [SplitWriter(directory / name, kind) for name in stores.SPLITS]
    unigrams = np.zeros((sources, vocabulary), np.int64)
    documents_of, tokens_of = np.zeros((2, sources, len(writers)), np.int64)
    first = 0
    for shard in shards:
        tokens, sentences, documents = shard.read("tokens", "sentences", "documents")
        of_shard = state[first : first + len(documents)]
        first += len(documents)
        for number, writer in enumerate(writers):
            chosen = of_shard == number
            of_sentences = np.repeat(chosen, documents)
            part = tokens[np.repeat(of_sentences, sentences)]
            writer.append(part, sentences[of_sentences], documents[chosen])
            documents_of[shard.source, number] += np.count_nonzero(chosen)
            tokens_of[shard.source, number] += len(part)
            if number == TRAIN:
                unigrams[shard.source] += np.bincount(part, minlength=vocabulary)
    for writer in writers:
        writer.close()
    return Written(unigrams, documents_of, tokens_of)


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
    """The arrays of one split, appended to shard by shard."""

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
