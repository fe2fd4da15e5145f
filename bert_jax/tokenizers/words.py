"""Defines the words of a text. There are four definitions, each with one use:

- a run of characters without white space: reports and perplexities count these, which no vocabulary changes;
- a run of letters, digits, "_" and combining marks: scores of sentences hide the rest of such a word;
- a piece that begins a word, and those after it that do not (`Tokenizer.word_starts`): masks cover these;
- a unit that a tokenizer encodes by itself, such as a word with the space before it: corpus_encoder.py keeps its ids.
"""

import re
import sys
import unicodedata
from functools import cache

import numpy as np


def count(text: str) -> int:
    """Returns the number of words by white space."""
    return len(text.split())


def stops(text: str, begins_word: np.ndarray, offsets: list[tuple]) -> np.ndarray:
    """Returns int64[size]: for each token of a text, where its word ends, as a number of tokens.

    A word is a run, see above, or a part of it where the vocabulary begins words within a run.

    begins_word: bool[size], whether each piece begins a word, see `Tokenizer.word_starts`.
    offsets: where each token begins and ends in the text.
    """
    is_start = begins_word.copy()
    inner = set()  # positions in front of which a run has begun that goes on there
    for match in run_pattern().finditer(text):
        inner.update(range(match.start() + 1, match.end()))
    before = (0, 1)
    for index, (start, stop) in enumerate(offsets):
        continues = (
            start < before[1]  # pieces of one character have the same offsets
            or not text[slice(*before)].strip()  # a piece of a space alone begins the word after it
            or start in inner
        )
        is_start[index] |= index == 0 or not continues
        before = (start, stop)
    edges = np.append(np.flatnonzero(is_start), len(is_start))
    return edges[np.searchsorted(edges, np.arange(len(is_start)), side="right")]


@cache
def run_pattern() -> re.Pattern:
    """Returns the pattern of a run: a letter, digit or "_", then more of them and combining marks, as accents and
    vowel signs."""
    characters = map(chr, range(sys.maxunicode + 1))
    marks = [mark for mark in characters if unicodedata.category(mark).startswith("M")]
    return re.compile(rf"\w[\w{''.join(marks)}]*")
