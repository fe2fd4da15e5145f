"""Words of texts: runs of letters, digits, "_", and combining marks, such as accents and vowel signs."""

import re
import sys
import unicodedata
from functools import cache


@cache
def part_pattern() -> re.Pattern:
    """Returns the pattern of a word, or of a run of other characters without white space."""
    marks = "".join(filter(is_mark, map(chr, range(sys.maxunicode + 1))))
    return re.compile(rf"[\w{marks}]+|[^\w\s{marks}]+")


def is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def is_inside(text: str, place: int) -> bool:
    """Returns whether a word goes on at a place of a text: the characters in front of it and at it are of words."""
    pair = text[place - 1 : place + 1]
    return len(pair) == 2 and all(
        character.isalnum() or character == "_" or is_mark(character) for character in pair
    )
