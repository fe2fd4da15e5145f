"""Texts that tokenizers stumble over, and real ones from ../shared/data."""

import lzma
import random
from itertools import islice
from pathlib import Path

import pytest
from kits.places import DATA

PROSE = [
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening.",
    "A tokenizer parts words into pieces; unknown words become many pieces, or none.",
    "Élan vital, naïve façades: coöperation isn't déjà-vu.",
] * 20

# Many different words, without which there is no unigram model of any size.
SYLLABLES = [a + b for a in "bdfglmnprst" for b in ("a", "en", "i", "or", "u")]
draw = random.Random(0)
INVENTED = ["".join(draw.choices(SYLLABLES, k=draw.choice((1, 2, 2, 3)))) for _ in range(300)]
PROSE += [" ".join(draw.choices(INVENTED, k=15)) for _ in range(60)]

NASTY = [
    "",
    " ",
    "\t\n\r",
    "\x00\ufffd\x0b\x0c\x1c\x85",
    "a\x00b\x0bc\x1cd\x85e\u200bf\u00adg",
    "a\xa0b\u3000c\u2028d",
    "e\u0301 =\u0338a a\u226fb \u037e \u1fef",
    "İSTANBUL ΣΑΣ ß ŉ ǰ ﬁ",
    "[MASK] [CLS] [SEP] [UNK] [PAD] ##ing [unused1]",
    "他来了。She said:“好”！漢字かな交じり文 \uf900\u2f800 \U00020000",
    "한국어 가각",
    "x" * 100 + " " + "x" * 101 + " " + "x" * 200,
    "don't-do_it@home.com $5.00 50% ~`^<>|",
    "🙂👩‍👩‍👧 ①½ Ⅷ",
    "\u0301start \u0301\u0302",
]

ODD = [
    "🙂",
    "👩\u200d👩\u200d👧",
    "🇨🇭",
    "\xa0",
    "\u3000",
    "\t",
    "  ",
    "   ",
    "\u200b",
    "\u2003",
    "▁",
    "\ufeff",
]


def nasty(draw: random.Random) -> str:
    """A random string of what normalizers stumble over."""
    alphabet = "aAzZ09éÉßİΣς ́̈=.,!'\"-_[]#  \t\n\r\x00\x0b\x0c\x1c\x85\xa0\u200b\u3000\ufffd。中漢か가ﬁ½🙂\u226f\u037e"
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(40)))


def published(name: str) -> Path:
    """A file of ../shared/data/vocab."""
    path = DATA / "vocab" / name
    if not path.exists():
        pytest.skip(f"needs {path}")
    return path


def real_lines(language: str, number: int) -> list[str]:
    """The first lines of Wikipedia, in English (en) or Chinese (zh), that are not blank."""
    path = next((DATA / f"{language}wiki").glob("*.xz"), None)
    if path is None:
        pytest.skip(f"needs {DATA}/{language}wiki")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return list(islice((line.rstrip("\n") for line in file if line.strip()), number))


def odd_lines(number: int, seed: int = 0) -> list[str]:
    """Half English, half Chinese lines with emoji and odd spaces put into them."""
    draw = random.Random(seed)
    lines = []
    for line in real_lines("en", number // 2) + real_lines("zh", number // 2):
        for _ in range(draw.randrange(6)):
            place = draw.randrange(len(line) + 1)
            line = line[:place] + draw.choice(ODD) + line[place:]
        lines.append(line)
    return lines
