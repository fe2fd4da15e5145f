"""Text that models of different vocabularies predict word by word: for all of them exactly the same characters.

Sentences are gathered into windows that fit every vocabulary. In a window some words are chosen, by a hash, and each
grows until no piece of any vocabulary straddles its border. All its pieces are then replaced by [MASK], so the number
of [MASK]s tells a model into how many pieces a word was cut: finer vocabularies are told a little more.

W words, N pieces. A span is the first character in the text and the end.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.tokenizers.tokenizer import Tokenizer

RATE = 0.15  # share of the words that are chosen

# Scripts that put no space between words, by how the names of their characters begin.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI ", "THAI", "LAO", "KHMER", "MYANMAR")
# In terms of `kind`: a character that is a word of its own, or a run of others, each with marks that follow.
WORD = re.compile("am*|w[wm]*")


class Pieces(NamedTuple):
    """A text as one vocabulary cuts it."""

    ids: np.ndarray  # int32[N]
    spans: (
        np.ndarray
    )  # int64[N, 2]  without white space at either side; empty where there is nothing else


class Window(NamedTuple):
    """A text, and the words in it that are predicted."""

    document: int
    text: str
    pieces: list[Pieces]  # of every vocabulary
    words: np.ndarray  # int64[W, 2]  spans that no piece straddles, in order; W may be 0
    unknown: np.ndarray  # int64[vocabularies]  words left out because [UNK], or nothing, is in them


def windows(
    documents: Iterable[list[str]], tokenizers: list[Tokenizer], limit: int, seed: int
) -> Iterator[Window]:
    """The windows of documents (lists of sentences), each of at most `limit` pieces in every vocabulary.

    A word is chosen by (seed, document, its number in the document); where that chooses none in a window, one is.
    """
    for document, sentences in enumerate(documents):
        key, first = prng.key(seed, prng.PURPOSE["words"], document), 0
        for text, pieces in gather(sentences, tokenizers, limit):
            words = find_words(text)
            numbers = np.arange(first, first + len(words), dtype=np.uint32)
            grown = grow(words, choose(key, numbers), pieces)
            unknown = np.array(
                [lacking(cut, t.unk, grown) for cut, t in zip(pieces, tokenizers, strict=True)]
            )
            kept = grown[~unknown.any(axis=0)]
            yield Window(document, text, pieces, kept, unknown.sum(axis=1))
            first += len(words)


# --- Text in parts that fit -----------------------------------------------------------------------


def gather(
    sentences: list[str], tokenizers: list[Tokenizer], limit: int
) -> Iterator[tuple[str, list[Pieces]]]:
    """Sentences, cut apart one by one, joined by spaces for as long as they fit."""
    parts, sizes = [], 0
    for sentence in sentences:
        for text, pieces in fitting(sentence.strip(), tokenizers, limit):
            more = np.array([len(cut.ids) for cut in pieces])
            if parts and (sizes + more > limit).any():
                yield join(parts)
                parts, sizes = [], 0
            parts.append((text, pieces))
            sizes = sizes + more
    if parts:
        yield join(parts)


def fitting(
    text: str, tokenizers: list[Tokenizer], limit: int
) -> Iterator[tuple[str, list[Pieces]]]:
    """The text, in halves of halves if it is too long; a character that alone is too long is left out."""
    pieces = [read(tokenizer, text) for tokenizer in tokenizers]
    if all(len(cut.ids) <= limit for cut in pieces):
        yield text, pieces
    elif len(text) > 1:
        place = middle(text)
        for half in (text[:place], text[place:]):
            yield from fitting(half.strip(), tokenizers, limit)


def middle(text: str) -> int:
    """Where to halve a text: at the white space next to its middle or, without any, before a character."""
    half = len(text) // 2
    spaces = [space.start() for space in re.finditer(r"\s+", text)]
    if spaces:
        return min(spaces, key=lambda place: abs(place - half))
    while half > 1 and kind(text[half]) == "m":
        half -= 1
    return half


def join(parts: list[tuple[str, list[Pieces]]]) -> tuple[str, list[Pieces]]:
    texts, pieces = zip(*parts, strict=True)
    starts = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
    joined = []
    for cuts in zip(*pieces, strict=True):
        spans = [cut.spans + start for cut, start in zip(cuts, starts, strict=True)]
        joined.append(Pieces(np.concatenate([cut.ids for cut in cuts]), np.concatenate(spans)))
    return " ".join(texts), joined


def read(tokenizer: Tokenizer, text: str) -> Pieces:
    """The pieces of a text, each where it can be seen.

    A piece of white space alone, or of nothing, belongs to what follows, so "▁" before "xyz" is part of the word; not
    where a new word follows, as among several spaces.
    """
    ids, found = tokenizer.spans(text)
    spans = np.array([trim(text, *span) for span in found], np.int64).reshape(-1, 2)
    mark = tokenizer.model.mark
    for place in reversed(range(len(ids) - 1)):
        begins = tokenizer.pieces[ids[place + 1]].startswith(mark)
        if spans[place, 0] == spans[place, 1] and not begins:
            spans[place] = spans[place + 1]
    return Pieces(np.array(ids, np.int32), spans)


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[end - 1].isspace():
        end -= 1
    while start < end and text[start].isspace():
        start += 1
    return start, end


# --- Words ----------------------------------------------------------------------------------------


def find_words(text: str) -> np.ndarray:
    """int64[W, 2]: runs of letters, digits and marks; a character of a script without spaces is a word."""
    found = [word.span() for word in WORD.finditer("".join(map(kind, text)))]
    return np.array(found, np.int64).reshape(-1, 2)


@lru_cache(maxsize=1 << 16)
def kind(character: str) -> str:
    """w in words, a a word alone, m a mark on what stands before, "-" none of them."""
    category = unicodedata.category(character)[0]
    if category == "M":
        return "m"
    if category not in "LN":
        return "-"
    return "a" if unicodedata.name(character, "").startswith(UNSPACED) else "w"


def choose(key: np.uint32, numbers: np.ndarray) -> np.ndarray:
    """bool[W]: about RATE of the words with these numbers, and one at least."""
    bits = prng.fold(np.full(len(numbers), key), numbers)
    return (bits < RATE * 2**32) | (bits == bits.min(initial=2**32 - 1))


def grow(words: np.ndarray, chosen: np.ndarray, pieces: list[Pieces]) -> np.ndarray:
    """int64[G, 2]: the chosen words, each with all that a piece or a word ties to it; those tied together are one."""
    everything = np.concatenate([words, *(cut.spans for cut in pieces)])
    stretches = untied(everything[everything[:, 0] < everything[:, 1]])
    places = np.searchsorted(stretches[:, 0], words[chosen, 0], "right") - 1
    return stretches[np.unique(places)]


def untied(spans: np.ndarray) -> np.ndarray:
    """int64[U, 2]: the shortest stretches whose borders none of the spans straddles, in order; no span is empty."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    begins = np.flatnonzero(spans[1:, 0] >= ends[:-1]) + 1
    begins = np.concatenate([np.zeros(min(1, len(spans)), np.int64), begins])
    lasts = np.concatenate([begins[1:], [len(spans)]])[: len(begins)] - 1
    return np.stack([spans[begins, 0], ends[lasts]], axis=1)


def owners(pieces: Pieces, words: np.ndarray) -> np.ndarray:
    """int64[N]: the word that a piece stands in, -1 for none; no piece straddles a word."""
    starts = pieces.spans[:, 0]
    if not len(words):
        return np.full(len(starts), -1)
    found = np.searchsorted(words[:, 0], starts, "right") - 1
    inside = (found >= 0) & (starts < words[found, 1])
    return np.where(inside, found, -1)


def lacking(pieces: Pieces, unk: int, words: np.ndarray) -> np.ndarray:
    """bool[W]: whether [UNK] is among a word's pieces, or it has none."""
    owner = owners(pieces, words)
    lacks = np.bincount(owner[owner >= 0], minlength=len(words)) == 0
    lacks[owner[(owner >= 0) & (pieces.ids == unk)]] = True
    return lacks
