"""Whether the content of a store holds together, whatever its manifest says.

A file that was cut where a record ends, and a manifest made anew around it, have sizes and SHA-256 that agree; the
arrays do not. They are read once, from first to last, in parts; memory holds a part, the counts of pieces and
some 150 bytes a held-out document.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.store import ARRAYS, SPLITS, Problem, map_array, token_type
from bert_jax.prng import fold, mix
from bert_jax.storage import regular_files
from bert_jax.storage.checksums import inside

PART = 1 << 22  # items at a time


class Arrays(NamedTuple):
    """A split's mapped arrays; None stands for one that cannot be used, of which a problem tells."""

    tokens: np.ndarray | None
    sentence_ends: np.ndarray | None
    document_ends: np.ndarray | None


def check(directory: Path, tokenizer, manifest: dict | None, tell: Callable) -> Iterator[Problem]:
    """What is wrong with the arrays. Without a tokenizer ids are not checked, without a manifest no counts."""
    splits, counts = {}, {}
    sources = manifest and manifest["sources"]
    for name in SPLITS:
        tell(f"verify: content of {name}")
        split = splits[name] = yield from open_split(directory, name, tokenizer)
        if tokenizer is not None and split.tokens is not None:
            ends = source_ends(split, sources, name)
            counts[name] = yield from check_tokens(name, split.tokens, tokenizer, ends)
        if manifest:
            yield from check_counts(name, split, manifest)
    if "train" in counts:
        yield from check_unigrams(directory, counts["train"], sources)
    if all(array is not None for split in splits.values() for array in split):
        tell("verify: held-out documents among the training ones")
        yield from check_overlap(splits["train"], splits["heldout"])


# --- Arrays and their ends ------------------------------------------------------------------------


def open_split(directory: Path, name: str, tokenizer) -> Iterator[Problem]:
    """Returns the Arrays of a split: ends only where they rise to the length of a sound array."""
    kinds = [None if tokenizer is None else token_type(tokenizer.size), np.int64, np.int64]
    arrays = []
    for array, kind in zip(ARRAYS, kinds, strict=True):
        arrays.append((yield from open_array(directory, f"{name}/{array}.npy", kind, 1)))
    tokens, sentence_ends, document_ends = arrays
    paths = [f"{name}/{array}.npy" for array in ARRAYS]
    sound = yield from check_ends(paths[1], sentence_ends, paths[0], tokens)
    sentences = yield from check_ends(paths[2], document_ends, paths[1], sentence_ends)
    return Arrays(tokens, sentence_ends if sound else None, document_ends if sentences else None)


def open_array(directory: Path, name: str, kind, axes: int) -> Iterator[Problem]:
    """Returns the mapped array of a file, or None after a problem; `kind` None is any unsigned type."""
    path = directory / name
    try:
        there = path.is_file() and inside(directory, name)
    except OSError as error:
        yield Problem(name, f"cannot be read ({error.strerror})")
        return None
    if not there:
        yield Problem(name, "missing")
        return None
    array, error = load(path)
    if array is None:
        yield Problem(name, f"no readable array ({error})")
        return None
    kinds = (np.dtype(np.uint16), np.dtype(np.uint32)) if kind is None else (np.dtype(kind),)
    if array.dtype not in kinds or array.ndim > axes or array.ndim < 1 or not array.size:
        yield Problem(
            name, f"an array of {array.dtype} and shape {array.shape}, {kinds[0]} expected"
        )
        return None
    size, expected = path.stat().st_size, array.offset + array.nbytes
    if size != expected:
        yield Problem(name, f"{size} bytes, {expected} by its header")
        return None
    return array


def load(path: Path) -> tuple[np.ndarray | None, str]:
    """The mapped array of a file, or None and why not."""
    try:
        return map_array(regular_files.check(path)), ""
    except Exception as error:  # a damaged header is evaluated, and can raise anything
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def check_ends(name: str, ends, counted_name: str, counted) -> Iterator[Problem]:
    """Returns whether `ends` rises strictly, from more than 0, to the length of `counted`."""
    if ends is None:
        return False
    before = 0
    for first in range(0, len(ends), PART):
        part = np.asarray(ends[first : first + PART])
        falls = np.flatnonzero(np.diff(part, prepend=before) <= 0)
        if len(falls):
            yield Problem(name, f"does not rise at number {first + falls[0]}")
            return False
        before = part[-1]
    if counted is not None and before != len(counted):
        yield Problem(name, f"ends at {before}, but {counted_name} has {len(counted)}")
    return counted is not None and before == len(counted)


def source_ends(split: Arrays, sources: list[dict] | None, name: str) -> list[int]:
    """Where each source ends in tokens; one end for all where the sources or the ends cannot be relied on."""
    whole = [0 if split.tokens is None else len(split.tokens)]
    if not sources or any(array is None for array in split):
        return whole
    documents = np.cumsum([source["documents"][name] for source in sources], dtype=np.int64)
    if documents[-1] != len(split.document_ends) or (np.diff(documents, prepend=0) < 0).any():
        return whole
    return [
        int(split.sentence_ends[split.document_ends[end - 1] - 1]) if end else 0
        for end in documents.tolist()
    ]


def check_counts(name: str, split: Arrays, manifest: dict) -> Iterator[Problem]:
    """The counts in the manifest against the lengths of the arrays that could be opened."""
    lengths = zip(("tokens", "sentences", "documents"), split, strict=True)
    found = {what: len(array) for what, array in lengths if array is not None}
    said = {what: [source.get(what) for source in manifest["sources"]] for what in found}
    said = {what: sum(each[name] for each in table) for what, table in said.items() if all(table)}
    total = manifest.get("splits", {}).get(name, {})
    for what in found:
        for number in dict.fromkeys(table[what] for table in (total, said) if what in table):
            if number != found[what]:
                yield Problem(
                    "manifest.json", f"{number} {what} in {name}, where there are {found[what]}"
                )


# --- Tokens ---------------------------------------------------------------------------------------


def check_tokens(name: str, tokens: np.ndarray, tokenizer, ends: list[int]) -> Iterator[Problem]:
    """Returns int64[len(ends), V], how often each piece stands in each source."""
    counts = np.zeros((len(ends), tokenizer.size), np.int64)
    beyond, first_beyond, path = 0, 0, f"{name}/tokens.npy"
    for source, (start, end) in enumerate(pairwise([0, *ends])):
        for first in range(start, end, PART):
            part = np.asarray(tokens[first : min(end, first + PART)])
            if part.max() >= tokenizer.size:
                outside = part >= tokenizer.size
                first_beyond = first_beyond if beyond else first + int(outside.argmax())
                beyond += int(outside.sum())
                part = part[~outside]
            counts[source] += np.bincount(part, minlength=tokenizer.size)
    if beyond:
        yield Problem(
            path,
            f"{beyond} ids beyond the vocabulary of {tokenizer.size} pieces, the first at {first_beyond}",
        )
    total = counts.sum(0)
    special = {piece for piece in tokenizer.special.values() if piece != tokenizer.unk}
    for piece in sorted(special):
        if total[piece]:
            yield Problem(path, f"{total[piece]} times the special piece {tokenizer.pieces[piece]}")
    return counts


def check_unigrams(
    directory: Path, counts: np.ndarray, sources: list[dict] | None
) -> Iterator[Problem]:
    array = yield from open_array(directory, "unigrams.npy", np.int64, 2)
    if array is None:
        return
    vocabulary = counts.shape[1]
    if array.size % vocabulary or (sources and array.size != len(sources) * vocabulary):
        yield Problem(
            "unigrams.npy", f"shape {array.shape}, but the vocabulary has {vocabulary} pieces"
        )
        return
    array = np.asarray(array).reshape(-1, vocabulary)
    if len(array) != len(counts):
        array, counts = array.sum(0, keepdims=True), counts.sum(0, keepdims=True)
    wrong = np.argwhere(array != counts)
    if len(wrong):
        source, piece = wrong[0]
        yield Problem(
            "unigrams.npy",
            f"{len(wrong)} counts are not those of train/tokens.npy; piece {piece}: {array[source, piece]},"
            f" counted {counts[source, piece]}",
        )


# --- Held-out documents ---------------------------------------------------------------------------


def check_overlap(train: Arrays, heldout: Arrays) -> Iterator[Problem]:
    """Held-out documents that are trained on. Only those that agree in length and five tokens are compared whole."""
    known = np.unique(np.concatenate([prints for _, prints in fingerprints(heldout)]))
    digests = {document_digest(heldout, n): n for n in range(len(heldout.document_ends))}
    pairs = {}
    for first, prints in fingerprints(train):
        for number in (first + np.flatnonzero(np.isin(prints, known))).tolist():
            same = digests.get(document_digest(train, number))
            if same is not None:
                pairs.setdefault(same, number)
    if pairs:
        number, other = next(iter(pairs.items()))
        yield Problem(
            "heldout/tokens.npy",
            f"{len(pairs)} held-out documents are trained on, too: number {number} is number {other} of"
            " train/tokens.npy",
        )


def fingerprints(split: Arrays) -> Iterator[tuple[int, np.ndarray]]:
    """(first document, uint64[documents]) in parts: a hash of each one's length, ends and middle."""
    begin = 0
    for first in range(0, len(split.document_ends), PART >> 3):
        documents = np.asarray(split.document_ends[first : first + (PART >> 3)])
        ends = split.sentence_ends[documents - 1]
        starts = np.concatenate([[begin], ends[:-1]])
        begin = ends[-1]
        last = ends - 1
        places = (
            starts,
            np.minimum(starts + 1, last),
            (starts + last) // 2,
            np.maximum(last - 1, starts),
            last,
        )
        lengths = (ends - starts).astype(np.uint32)
        high, low = mix(lengths), fold(lengths, np.uint32(1))
        for place in places:
            ids = split.tokens[place].astype(np.uint32)
            high, low = fold(high, ids), fold(low, ids)
        yield first, (high.astype(np.uint64) << np.uint64(32)) | low


def document_digest(split: Arrays, number: int) -> bytes:
    """SHA-256 of a document's ids."""
    first = split.document_ends[number - 1] if number else 0
    start = split.sentence_ends[first - 1] if first else 0
    end = split.sentence_ends[split.document_ends[number] - 1]
    return hashlib.sha256(split.tokens[start:end].astype("<u4").tobytes()).digest()
