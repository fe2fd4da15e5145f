"""The text that a vocabulary is trained on, split into lines for the trainers."""

from collections.abc import Iterable, Iterator

LONGEST = 1000  # characters, at most 4,000 bytes; sentencepiece skips lines over 4,192 bytes


def lines(texts: Iterable[str]) -> Iterator[str]:
    """Yields the non-blank lines of texts; splits lines over LONGEST characters."""
    for text in texts:
        for line in text.split("\n"):
            while len(line) > LONGEST:
                cut = line.rfind(" ", 1, LONGEST) if " " in line[1:LONGEST] else LONGEST
                yield line[:cut]
                line = line[cut:]
            if line.strip():
                yield line
