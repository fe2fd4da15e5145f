"""Shards -> the arrays of a store, in the order of the corpus, and what is counted as they are written."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import store as stores
from bert_jax.data.npy_file import Growing
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
    unigrams = np.zeros((sources, vocabulary), np.int64)
    documents_of, tokens_of = np.zeros((2, sources, len(stores.SPLITS)), np.int64)
    first, kind = 0, stores.token_type(vocabulary)
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(opened(directory / name, kind)) for name in stores.SPLITS]
        for shard in shards:
            tokens, sentences, documents = shard.read("tokens", "sentences", "documents")
            of_shard = state[first : first + len(documents)]
            first += len(documents)
            for number, writer in enumerate(writers):
                chosen = of_shard == number
                of_sentences = np.repeat(chosen, documents)
                part = tokens[np.repeat(of_sentences, sentences)]
                append(writer, part, sentences[of_sentences], documents[chosen])
                documents_of[shard.source, number] += np.count_nonzero(chosen)
                tokens_of[shard.source, number] += len(part)
                if number == TRAIN:
                    unigrams[shard.source] += np.bincount(part, minlength=vocabulary)
    return Written(unigrams, documents_of, tokens_of)


@contextlib.contextmanager
def opened(directory: Path, kind: np.dtype):
    """The arrays of one split, as they are written: tokens, sentence ends, document ends."""
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(directory / f"{n}.npy", "wb")) for n in stores.ARRAYS]
        arrays = list(map(Growing, files, (kind, np.int64, np.int64)))
        yield arrays
        for array in arrays:
            array.finish()


def append(arrays: list[Growing], tokens, sentences, documents) -> None:
    """Takes lengths of sentences and documents; writes ends."""
    all_tokens, sentence_ends, document_ends = arrays
    document_ends.append(sentence_ends.length + np.cumsum(documents, dtype=np.int64))
    sentence_ends.append(all_tokens.length + np.cumsum(sentences, dtype=np.int64))
    all_tokens.append(tokens)
