"""The text that a vocabulary is trained on, as trainers take it."""

from collections.abc import Iterable, Iterator

# Characters outside this share of the training text become [UNK]: a rare script would fill a small
# vocabulary.
COVERAGE = 0.9999

LONGEST = 1000  # characters: at most 4,000 bytes, and sentencepiece leaves out lines over 4,192


def lines(texts: Iterable[str]) -> Iterator[str]:
    """The lines of texts that are not blank, as sentences are given to a tokenizer; long ones in parts."""
    for text in texts:
        for line in text.split("\n"):
            while len(line) > LONGEST:
                cut = line.rfind(" ", 1, LONGEST) if " " in line[1:LONGEST] else LONGEST
                yield line[:cut]
                line = line[cut:]
            if line.strip():
                yield line
