"""The token store: a directory of mapped arrays that `prepare` writes once and every run reads.

    manifest.json             format, what made it and its fingerprint, counts, SHA-256 of every file and of itself
    tokenizer/                the vocabulary, as bert_jax.tokenizers.tokenizer reads it
    report.json               the report of prepare, for programs
    report.txt                the same for people
    unigrams.npy              int64[K, V] how often each piece stands in the training split, by source
    train/tokens.npy          uint16 or uint32[T], all sentences one after the other, no special pieces
    train/sentence_ends.npy   int64[S]    where each sentence ends in tokens, increasing
    train/document_ends.npy   int64[D]    where each document ends in sentences, increasing
    heldout/...               the same for the documents that are never trained on
    heldout/text_hashes.npy   uint64[D, 2] of their text, by which they are found in it again

Sentences and documents are never empty. The documents of a source follow one another, in the order of the config; the
manifest's `sources` counts documents and tokens of each, by split. No document stands in both splits.

A store is written under a temporary name and renamed when it is whole, so a
directory with a manifest is a finished one.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import manifest
from bert_jax.errors import BadInput, one_line

FORMAT = 4
SPLITS = ("train", "heldout")
ARRAYS = ("tokens", "sentence_ends", "document_ends")
HELDOUT_HASHES = "heldout/text_hashes.npy"


class Split(NamedTuple):
    """Documents of token ids, as arrays mapped from files."""

    path: Path  # the directory the arrays lie in
    tokens: np.ndarray
    sentence_ends: np.ndarray
    document_ends: np.ndarray
    source_ends: np.ndarray  # int64[K] where each source ends in documents; from the manifest


class Store(NamedTuple):
    path: Path
    manifest: dict
    splits: dict[str, Split]

    @property
    def fingerprint(self) -> str:
        return self.manifest["fingerprint"]


def token_type(vocabulary: int) -> np.dtype:
    """The narrowest unsigned type that holds every id."""
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def read_manifest(directory: str | Path) -> dict:
    hint = "run bert-jax prepare into a new directory"
    return manifest.read(directory, FORMAT, "sources", hint)


def open_store(directory: str | Path, *, hashes: bool = False) -> Store:
    """Maps a store after checking its files against the manifest: sizes always, contents if `hashes`."""
    directory = Path(directory)
    known = read_manifest(directory)
    manifest.refuse_altered(directory, known, hashes)
    splits = {name: open_split(directory / name, known["sources"]) for name in SPLITS}
    return Store(directory, known, splits)


def entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that counts give."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def open_split(directory: Path, sources: list[dict]) -> Split:
    """Maps a split; `sources` is as in the manifest: documents of each source by split."""
    arrays = (open_array(directory / f"{name}.npy") for name in ARRAYS)
    documents = [source["documents"][directory.name] for source in sources]
    return Split(directory, *arrays, np.cumsum(documents, dtype=np.int64))


def open_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # what reads its header raises what it likes
        raise BadInput(f"{path}: cannot be read ({one_line(error)})") from None
