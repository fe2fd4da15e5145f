"""Words of texts: runs of letters, digits, "_", and combining marks behind them, such as accents and vowel signs."""

import re
import sys
import unicodedata
from functools import cache


@cache
def part_pattern() -> re.Pattern:
    """Returns the pattern of a word, which is its first group, or of a run of other characters without white space."""
    characters = map(chr, range(sys.maxunicode + 1))
    marks = [mark for mark in characters if unicodedata.category(mark).startswith("M")]
    return re.compile(rf"(\w[\w{''.join(marks)}]*)|[^\w\s]+")


def inner_places(text: str) -> set[int]:
    """Returns the places of a text in front of which a word has begun that goes on there."""
    places = set()
    for match in part_pattern().finditer(text):
        if match[1]:
            places.update(range(match.start() + 1, match.end()))
    return places
