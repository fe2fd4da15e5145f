"""Shards -> the arrays of a store, in the order of the corpus, and what is counted as they are written."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import store as stores
from bert_jax.data.preparation.filters import HELDOUT, TRAIN, Chosen, select
from bert_jax.data.preparation.repeats import among
from bert_jax.data.preparation.shards import Shards


class Written(NamedTuple):
    """Counts of a store's content."""

    unigrams: np.ndarray  # int64[sources, V]  of the training split
    documents: np.ndarray  # int64[sources, 2]  in train and heldout
    tokens: np.ndarray  # int64[sources, 2]
    often: int  # training tokens in sentences that stand often
    most: list  # [times, ids] of the most repeated sentences


def write(
    shards: Shards, chosen: Chosen, sources: int, directory: Path, vocabulary: int
) -> Written:
    """Writes both splits under `directory`; a shard at a time is in memory."""
    kind = stores.token_type(vocabulary)
    writers = [SplitWriter(directory / name, kind) for name in stores.SPLITS]
    unigrams = np.zeros((sources, vocabulary), np.int64)
    documents_of, tokens_of = np.zeros((2, sources, len(writers)), np.int64)
    often, texts = 0, {}
    for shard in shards:
        tokens, sentences, documents, hashes = shard.read(
            "tokens", "sentences", "documents", "sentence_hashes"
        )
        state = np.repeat(chosen.state[shard.documents], documents)
        kept = (state <= HELDOUT) & ~among(hashes, chosen.repeats.dropped)
        train = kept & (state == TRAIN)
        often += int(sentences[train & among(hashes, chosen.repeats.often)].sum())
        find(chosen.repeats.most, texts, tokens, sentences, hashes)
        for number, writer in enumerate(writers):
            part = select(tokens, sentences, documents, kept & (state == number))
            writer.append(*part[:2], part[2][part[2] > 0])
            documents_of[shard.source, number] += np.count_nonzero(part[2])
            tokens_of[shard.source, number] += len(part[0])
            if number == TRAIN:
                unigrams[shard.source] += np.bincount(part[0], minlength=vocabulary)
    for writer in writers:
        writer.close()
    most = [[times, texts[value]] for times, value in chosen.repeats.most]
    return Written(unigrams, documents_of, tokens_of, often, most)


def find(most: list, texts: dict, tokens: np.ndarray, sentences: np.ndarray, hashes: np.ndarray):
    """Puts the ids of the sentences of `most` (times, hash) that stand here into `texts`, by hash."""
    wanted = np.array(sorted(value for _, value in most if value not in texts), np.uint64)
    places = np.flatnonzero(among(hashes, wanted))
    values, first = np.unique(hashes[places], return_index=True)
    ends = np.cumsum(sentences, dtype=np.int64)
    for value, place in zip(values.tolist(), places[first], strict=True):
        texts[value] = tokens[ends[place] - sentences[place] : ends[place]]


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
