"""The token store: a directory of mapped arrays that `prepare` writes once and every run reads.

    manifest.json             format, what made it and its fingerprint, counts, SHA-256 of every file and of itself
    tokenizer/                the vocabulary, as bert_jax.tokenizers.tokenizer reads it
    report.json               what prepare counted, for programs: numbers of the store alone
    report.txt                the report for people, as it was for the config that made the store
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

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.errors import BadInput
from bert_jax.storage import checksums, regular_files

FORMAT = 3
SPLITS = ("train", "heldout")
KEYS = {"format", "digest", "files", "fingerprint", "made_from", "sources", "special"}
KEYS |= {"unigram_entropy", "vocabulary"}
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


class Problem(NamedTuple):
    """Something that is wrong with a store."""

    file: str  # its name within the store
    text: str


def token_type(vocabulary: int) -> np.dtype:
    """The narrowest unsigned type that holds every id."""
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def write_manifest(directory: Path, manifest: dict) -> None:
    """Adds format, files and digest to `manifest` and writes it: the last file of a store to be written."""
    manifest = {"format": FORMAT, **manifest, "files": checksums.file_table(directory)}
    manifest["digest"] = checksums.manifest_digest(manifest)
    (directory / "manifest.json").write_text(checksums.manifest_text(manifest))


def read_manifest(directory: Path) -> dict:
    path = Path(directory) / "manifest.json"
    try:
        manifest = json.loads(regular_files.text(path))
    except FileNotFoundError:
        raise BadInput(
            f"{directory}: not a token store (no manifest.json); run bert-jax prepare"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable manifest ({error})") from None
    if not well_formed(manifest):
        raise BadInput(
            f"{path}: not a token store of format {FORMAT}; run bert-jax prepare into a new directory"
        )
    if manifest["digest"] != checksums.manifest_digest(manifest):
        raise BadInput(f"{path}: altered since it was written (SHA-256 differs from its digest)")
    return manifest


def well_formed(manifest) -> bool:
    """Whether JSON is a manifest of this format, as far as what reads it relies on."""
    if not isinstance(manifest, dict) or not set(manifest) >= KEYS or manifest["format"] != FORMAT:
        return False
    files, sources = manifest["files"], manifest["sources"]
    if not isinstance(files, dict) or not isinstance(sources, list):
        return False
    listed = all(
        isinstance(file, dict) and {"bytes", "sha256"} <= set(file) for file in files.values()
    )
    counts = (source.get("documents") for source in sources if isinstance(source, dict))
    counted = [count for count in counts if isinstance(count, dict) and set(SPLITS) <= set(count)]
    return listed and len(counted) == len(sources) > 0


def check_files(directory: Path, manifest: dict, *, hashes: bool) -> Iterator[Problem]:
    """Compares the files that a manifest names with it: sizes always, contents if `hashes`. Yields what differs."""
    for split in SPLITS:
        for name in (f"{split}/{array}.npy" for array in ARRAYS):
            if name not in manifest["files"]:
                yield Problem("manifest.json", f"does not name {name}")
    for name, expected in manifest["files"].items():
        text = checksums.check_file(Path(directory), name, expected, hashes)
        if text:
            yield Problem(name, text)


def open_store(directory: str | Path, *, hashes: bool = False) -> Store:
    """Maps a store after checking its files against the manifest: sizes always, contents if `hashes`."""
    directory = Path(directory)
    manifest = read_manifest(directory)
    for problem in check_files(directory, manifest, hashes=hashes):
        raise BadInput(f"{directory / problem.file}: {problem.text}")
    splits = {name: open_split(directory / name, manifest["sources"]) for name in SPLITS}
    return Store(directory, manifest, splits)


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
        return map_array(path)
    except Exception as error:  # what reads its header raises what it likes
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise BadInput(f"{path}: cannot be read ({reason})") from None


HEADER = 10_000  # bytes, more than which NumPy does not read


def map_array(path: Path) -> np.ndarray:
    """A mapped file of NumPy's; a header that NumPy would have to guess at, with a warning, is an error."""
    with open(path, "rb") as file:
        major, _ = np.lib.format.read_magic(file)
        size = int.from_bytes(file.read(2 if major == 1 else 4), "little")
        ast.literal_eval(file.read(min(size, HEADER)).decode("utf-8"))
    return np.load(path, mmap_mode="r", allow_pickle=False)
