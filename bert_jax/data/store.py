"""The token store: a directory of memory-mapped arrays that `prepare` writes once and every run reads.

    manifest.json             format, config keys, identity of the text, fingerprint, counts, SHA-256 of every file and
                              of itself
    tokenizer/                the tokenizer, as bert_jax.tokenizers.tokenizer reads it
    report.json               the report of `prepare`
    unigrams.npy              int64[K, V] the count of each piece in the training split, by source
    train/tokens.npy          uint16 or uint32[T], all sentences one after the other, without special tokens
    train/sentence_ends.npy   int64[S]    where each sentence ends in tokens, increasing
    train/document_ends.npy   int64[D]    where each document ends in sentences, increasing
    heldout/...               the same for the documents that are never trained on
    heldout/text_hashes.npy   uint64[N, 2] of the texts of its documents, by which heldout_text.py finds them in the
                              corpus; N > D if some have no tokens

Sentences and documents are never empty. The sources follow in the order of the config, each with its documents in
order; the manifest's `sources` counts the documents and tokens of each, by split, and has its name, if any. No document
is in both splits.

A store is written under a temporary name and renamed when it is complete. The manifest is written last, so a directory
with a manifest is a finished store.
"""

import itertools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import manifest
from bert_jax.errors import BadInput, one_line
from bert_jax.storage.checksums import json_digest
from bert_jax.tokenizers import tokenizer as tokenizers

FORMAT = 6
SPLITS = ("train", "heldout")
ARRAYS = ("tokens", "sentence_ends", "document_ends")
HELDOUT_HASHES = "heldout/text_hashes.npy"


class Split(NamedTuple):
    """Documents of token ids, as arrays mapped from files, or in memory."""

    path: Path | None  # the directory of the arrays; None: they are in memory
    tokens: np.ndarray
    sentence_ends: np.ndarray
    document_ends: np.ndarray
    source_ends: np.ndarray  # int64[K] where each source ends in documents; from the manifest
    documents: range  # the numbers of its documents: all, or those of one source
    values: dict = {}  # {name: an array or a list of its task} of those in memory

    def read(self, name: str) -> np.ndarray | list:
        """Returns the array in NAME.npy, or the list in NAME.json."""
        if name in self.values:
            return self.values[name]
        path = self.path / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text())
        return open_array(self.path / f"{name}.npy")


class Store(NamedTuple):
    """An open token store."""

    path: Path | None  # None: it is in memory
    manifest: dict
    # train and heldout, and those of each source that has a name: train_fi
    splits: dict[str, Split]
    loaded: tokenizers.Tokenizer | None = None  # the tokenizer of a store in memory

    @property
    def fingerprint(self) -> str:
        return self.manifest["fingerprint"]

    @property
    def tokenizer(self) -> tokenizers.Tokenizer:
        return self.loaded or tokenizers.load(self.path / "tokenizer")


def number_of(split: str) -> int:
    """Returns 0 for a split that is trained on, or a source of it, and 1 for others."""
    return int(split.partition("_")[0] != SPLITS[0])


def count_split(split: Split) -> dict[str, int]:
    """Returns the number of documents, sentences and tokens of a split."""
    return {
        "documents": len(split.document_ends),
        "sentences": len(split.sentence_ends),
        "tokens": len(split.tokens),
    }


def token_type(vocabulary: int) -> np.dtype:
    """Returns the narrowest unsigned type that holds every id."""
    if vocabulary <= 1 << 16:
        return np.dtype(np.uint16)
    return np.dtype(np.uint32)


def finish(directory: Path, made_from: dict, content, tokenizer, more: dict) -> None:
    """Writes the tokenizer and then the manifest, which marks a store as complete.

    made_from: {key: value} of the config.
    content: what else decides its fingerprint.
    more: other keys of the manifest.
    """
    tokenizer.save(directory / "tokenizer")
    properties = {
        "fingerprint": json_digest([made_from, tokenizer.fingerprint, content]),
        "made_from": made_from,
        "vocabulary": tokenizer.size,
        "special": tokenizer.special,
    }
    manifest.write(directory, properties | more, FORMAT)


def read_manifest(directory: str | Path) -> dict:
    """Reads the manifest of a store. Raises BadInput if there is none, or if it is damaged or of another format."""
    hint = "run bert-jax prepare into a new directory"
    return manifest.read(directory, FORMAT, "sources", hint)


def open_store(directory: str | Path, *, hashes: bool = False) -> Store:
    """Maps a store. Raises BadInput if a file's size or, with `hashes`, its SHA-256 differs from the manifest."""
    directory = Path(directory)
    content = read_manifest(directory)
    manifest.verify_files(directory, content, hashes)
    sources = content["sources"]
    splits = {}
    for name in sources[0]["documents"]:
        split = splits[name] = open_split(directory / name, sources)
        ends = split.source_ends.tolist()
        for source, documents in zip(sources, itertools.pairwise([0, *ends]), strict=True):
            if "name" in source:
                splits[f"{name}_{source['name']}"] = split._replace(documents=range(*documents))
    return Store(directory, content, splits)


def entropy(counts: np.ndarray) -> float:
    """Returns the entropy, in nats, of the distribution of counts."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def open_split(directory: Path, sources: list[dict]) -> Split:
    """Maps a split. sources: as in the manifest, with the number of documents of each source by split."""
    arrays = (open_array(directory / f"{name}.npy") for name in ARRAYS)
    documents = [source["documents"][directory.name] for source in sources]
    ends = np.cumsum(documents, dtype=np.int64)
    return Split(directory, *arrays, ends, range(int(ends[-1])))


def open_array(path: Path) -> np.ndarray:
    """Maps a .npy file; raises BadInput that names it."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy evaluates the header; a damaged one can raise any type
        hint = "restore it, or prepare the text into another config.store"
        raise BadInput(f"{path}: cannot be read ({one_line(error)}); {hint}") from None
