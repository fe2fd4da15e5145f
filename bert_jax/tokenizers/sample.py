"""The text that a vocabulary is trained on, split into lines for the trainers."""

from collections.abc import Iterable, Iterator

MAX_LINE = 1000  # characters, at most 4,000 bytes; sentencepiece skips lines over 4,192 bytes


def lines(texts: Iterable[str]) -> Iterator[str]:
    """Yields the non-blank lines of texts; splits lines over MAX_LINE characters."""
    for text in texts:
        for line in text.split("\n"):
            while len(line) > MAX_LINE:
                cut = line.rfind(" ", 1, MAX_LINE) if " " in line[1:MAX_LINE] else MAX_LINE
                yield line[:cut]
                line = line[cut:]
            if line.strip():
                yield line
