"""Numbers of a corpus that has become arrays: pieces, lengths, sources, and the first documents.

Arrays are mapped and read in parts, so memory does not grow with the corpus; of the tokens only a few are read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.store import ARRAYS, entropy, open_array

PART = 1 << 20  # lengths at a time
SHOWN = 10  # longest and commonest pieces
EXCERPT = 100  # characters
SHOWN_DOCUMENTS, SHOWN_SENTENCES, SHOWN_PIECES = 3, 3, 30
# Spans of the training tokens in which scripts are looked for; tokens of each.
SAMPLES, SAMPLE = 16, 512
# Thai, Lao, Tibetan, Myanmar, Khmer, Japanese, Chinese: a "word" between spaces is a phrase there.
SPACELESS = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Arrays(NamedTuple):
    """The mapped arrays of a split, as store.py describes them."""

    tokens: np.ndarray
    sentence_ends: np.ndarray
    document_ends: np.ndarray

    @classmethod
    def open(cls, directory: Path) -> "Arrays":
        return cls(*(open_array(directory / f"{name}.npy") for name in ARRAYS))

    def counts(self) -> dict:
        lengths = map(len, reversed(self))
        return dict(zip(("documents", "sentences", "tokens"), lengths, strict=True))


def of_sources(sources: list[dict], weights: np.ndarray) -> list[dict]:
    """The sources with `weight`, and `share`: of the tokens of an epoch, in which they are read `weight` times."""
    tokens = weights * [source["tokens"]["train"] for source in sources]
    shares = tokens / tokens.sum()
    return [
        source | {"weight": float(weight), "share": float(share)}
        for source, weight, share in zip(sources, weights, shares, strict=True)
    ]


def unigrams(directory: Path, tokenizer) -> np.ndarray:
    """int64[sources, V]: how often each piece stands in the training split."""
    return open_array(directory / "unigrams.npy").reshape(-1, tokenizer.size)


def of_vocabulary(unigrams: np.ndarray, tokenizer) -> dict:
    """How much of the vocabulary is used, and its longest pieces that are."""
    counts = unigrams.sum(0)
    ordinary = np.ones(len(counts), bool)
    ordinary[list(tokenizer.special.values())] = False
    used = np.flatnonzero(ordinary & (counts > 0))
    longest = sorted(used, key=lambda piece: (-length(tokenizer.readable(piece)), piece))[:SHOWN]
    return {
        "unused_share": float(1 - len(used) / max(ordinary.sum(), 1)),
        "longest_pieces": [[tokenizer.readable(piece), int(counts[piece])] for piece in longest],
    }


def of_epoch(unigrams: np.ndarray, weights: np.ndarray, tokenizer) -> dict:
    """What the pieces of an epoch tell, in which each source is read `weights` times: shares; and the entropy in nats
    of the text as it is, since held-out text, which has no weights, is compared with it."""
    shares = weights @ unigrams
    shares = shares / shares.sum()
    commonest = np.argsort(-shares, kind="stable")[:SHOWN]
    return {
        "unigram_entropy": entropy(unigrams.sum(0)),
        "pieces_per_word": float(1 / max(shares[tokenizer.word_starts].sum(), 1e-9)),
        "unknown_share": float(shares[tokenizer.unk]),
        "commonest_pieces": [
            [tokenizer.readable(piece), float(shares[piece])]
            for piece in commonest
            if shares[piece]
        ],
    }


def excerpt(text: str) -> str:
    """The beginning of a text, to be shown on a line."""
    return text if len(text) <= EXCERPT else text[:EXCERPT] + " …"


def length(piece: str) -> int:
    """Characters, without the mark that tells whether a piece begins a word."""
    return len(piece.removeprefix("##").lstrip("▁"))


def of_lengths(train: Arrays) -> dict:
    """Histograms of document and sentence lengths in tokens, and what the warnings need of them."""
    histogram, longest = np.zeros(64, np.int64), 0
    for lengths in differences(train.document_ends, train.sentence_ends):
        histogram += powers(lengths)
        longest = max(longest, int(lengths.max()))
    sentences = sum(powers(lengths) for lengths in differences(train.sentence_ends))
    single = sum(int((sizes < 2).sum()) for sizes in differences(train.document_ends))
    return {
        "document_lengths": bins(histogram),
        "sentence_lengths": bins(sentences),
        "longest_document_share": longest / len(train.tokens),
        "single_sentence_share": single / len(train.document_ends),
        "mean_sentence": len(train.tokens) / len(train.sentence_ends),
    }


def differences(ends: np.ndarray, of: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Lengths from ends, in parts; with `of`, where `ends` counts its items, in the unit that `of` counts."""
    before = 0
    for first in range(0, len(ends), PART):
        part = np.asarray(ends[first : first + PART])
        part = part if of is None else of[part - 1]
        yield np.diff(part, prepend=before)
        before = part[-1]


def powers(lengths: np.ndarray) -> np.ndarray:
    """int64[64]: how many lengths are in [2**k, 2**(k + 1)), for every k."""
    return np.bincount(np.frexp(lengths)[1] - 1, minlength=64)


def bins(histogram: np.ndarray) -> list[list[int]]:
    """[2**k, number] from the first k that has any to the last one."""
    used = np.flatnonzero(histogram)
    return [[1 << k, int(histogram[k])] for k in range(used[0], used[-1] + 1)]


def spaceless_share(tokens: np.ndarray, tokenizer) -> float:
    """Share, of the letters in spans spread evenly over the tokens, of scripts without spaces between words."""
    starts = np.linspace(0, max(0, len(tokens) - SAMPLE), SAMPLES).astype(int)
    text = "".join(tokenizer.decode(tokens[start : start + SAMPLE].tolist()) for start in starts)
    letters = sum(map(str.isalpha, text))
    return len(SPACELESS.findall(text)) / max(letters, 1)


def first_documents(train: Arrays, tokenizer) -> list[dict]:
    """The first documents as they will be seen, cut short: pieces parted by spaces."""
    shown = []
    for number in range(min(SHOWN_DOCUMENTS, len(train.document_ends))):
        first, last = (int(n) for n in bounds(train.document_ends, number))
        lines = []
        for sentence in range(first, min(last, first + SHOWN_SENTENCES)):
            start, end = bounds(train.sentence_ends, sentence)
            ids = train.tokens[start : min(end, start + SHOWN_PIECES)]
            more = " …" if end - start > SHOWN_PIECES else ""
            lines.append(" ".join(tokenizer.readable(piece) for piece in ids) + more)
        start, end = (train.sentence_ends[n - 1] if n else 0 for n in (first, last))
        shown.append({"sentences": last - first, "tokens": int(end - start), "shown": lines})
    return shown


def bounds(ends: np.ndarray, number: int) -> tuple[int, int]:
    return (int(ends[number - 1]) if number else 0), int(ends[number])
