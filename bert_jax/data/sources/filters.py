"""What is left out before sentences are split: lines by length, symbols and stops; short documents."""

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

from bert_jax.data.sources.sentences import CLOSING, STOPS

# What is certainly no letter, digit or space; marks may be among it.
NEITHER = re.compile(r"[^\w\s]|_")


class Filters(NamedTuple):
    """The keys of `config.filter` that are about single lines and documents; the default leaves nothing out."""

    document_characters: int = 0
    line_characters: int = 0
    line_symbols: float = 1.0
    line_stops: bool = False

    def keep(self, lines: list[str], problems: Counter) -> list[str] | None:
        """The lines that stay, or None where the document does not; the rest is counted by its reason."""
        if self.line_characters:
            reason = f"lines under {self.line_characters} characters"
            lines = left(lines, lambda line: len(line) >= self.line_characters, reason, problems)
        if self.line_symbols < 1:
            sparse = lambda line: not has_symbols(line, self.line_symbols)  # noqa: E731
            lines = left(lines, sparse, "lines of symbols", problems)
        if self.line_stops:
            lines = left(lines, ends_with_stop, "lines without a stop", problems)
        if sum(map(len, lines)) < self.document_characters:
            problems[f"documents under {self.document_characters} characters"] += 1
            return None
        return lines


NONE = Filters()


def left(lines: list[str], good, reason: str, problems: Counter) -> list[str]:
    kept = [line for line in lines if good(line)]
    if len(kept) < len(lines):
        problems[reason] += len(lines) - len(kept)
    return kept


def has_symbols(line: str, share: float) -> bool:
    """Whether more than this share of the characters are neither letters, marks, digits nor spaces."""
    found = NEITHER.findall(line)
    if len(found) <= share * len(line):
        return False
    marks = sum(unicodedata.category(character)[0] == "M" for character in found)
    return len(found) - marks > share * len(line)


def ends_with_stop(line: str) -> bool:
    """Whether a line ends with a sentence's stop of any script; closing quotes and brackets may follow it."""
    return line.rstrip(CLOSING + " \u00a0\u202f").endswith(tuple(STOPS))
