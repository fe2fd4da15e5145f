"""Difficult texts for tokenizers: invented ones, Python's manual, and Wikipedia from ../shared/data."""

import lzma
import random
import unicodedata
from itertools import islice
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from kits.paths import DATA, data  # noqa: F401

PROSE = [
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening.",
    "A tokenizer parts words into pieces; unknown words become many pieces, or none.",
    "Élan vital, naïve façades: coöperation isn't déjà-vu.",
] * 20

# Many different words: a unigram model of any size needs them.
SYLLABLES = [a + b for a in "bdfglmnprst" for b in ("a", "en", "i", "or", "u")]
draw = random.Random(0)
INVENTED = ["".join(draw.choices(SYLLABLES, k=draw.choice((1, 2, 2, 3)))) for _ in range(300)]
PROSE += [" ".join(draw.choices(INVENTED, k=15)) for _ in range(60)]

DIFFICULT = [
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

ODD = ["🙂", "👩\u200d👩\u200d👧", "🇨🇭", "\xa0", "\u3000", "\t", "  ", "   "]
ODD += ["\u200b", "\u2003", "▁", "\ufeff"]

# Latin, Greek, Cyrillic, Armenian and Chinese characters in composed form (NFC). Without sigma, whose lower case
# depends on its position in a word.
LETTERS = [chr(code) for code in [*range(0xA1, 0x590), *range(0x4E00, 0xA000, 16)]]
LETTERS = [c for c in LETTERS if unicodedata.category(c) not in ("Mn", "Cn") and c != "Σ"]
LETTERS = [c for c in LETTERS if unicodedata.normalize("NFC", c) == c]


def difficult_text(draw: random.Random) -> str:
    """Returns a random string of characters that are difficult for normalizers."""
    alphabet = "aAzZ09éÉßİΣς ́̈=.,!'\"-_[]#  \t\n\r\x00\x0b\x0c\x1c\x85\xa0\u200b\u3000\ufffd。中漢か가ﬁ½🙂\u226f\u037e"
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(40)))


def published(name: str) -> Path:
    """Returns the path of a published vocabulary in ../shared/data/vocab."""
    return data("vocab", name)


def real_lines(language: str, number: int) -> list[str]:
    """Returns the first lines of English (en) or Chinese (zh) Wikipedia, without blank ones."""
    path = next(data(f"{language}wiki").glob("*.xz"))
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return list(islice((line.rstrip("\n") for line in file if line.strip()), number))


def odd_lines(number: int, seed: int = 0) -> list[str]:
    """Returns lines of Wikipedia, half English and half Chinese, with emoji and unusual spaces inserted."""
    draw = random.Random(seed)
    lines = real_lines("en", number // 2) + real_lines("zh", number // 2)
    return [with_oddities(line, draw) for line in lines]


def manual_lines(number: int, seed: int = 0) -> list[str]:
    """Returns lines of Python's manual with words of other scripts, emoji and unusual spaces inserted."""
    draw = random.Random(seed)
    lines = [line.strip() for text in topics.values() for line in text.split("\n") if line.strip()]
    foreign = ["".join(draw.choices(LETTERS, k=draw.randrange(1, 6))) for _ in range(number)]
    lines = draw.sample(lines, number)
    lines = [f"{line} {word}" for line, word in zip(lines, foreign, strict=True)]
    return [with_oddities(line, draw) for line in lines]


def with_oddities(line: str, draw: random.Random) -> str:
    for _ in range(draw.randrange(6)):
        index = draw.randrange(len(line) + 1)
        line = line[:index] + draw.choice(ODD) + line[index:]
    return line


def as_documents(texts: list[str], size: int = 3) -> list[list[str]]:
    """Returns documents of `size` sentences, stripped and without line breaks, as the corpus yields them."""
    sentences = [" ".join(text.split("\n")).strip() for text in texts]
    sentences = [sentence for sentence in sentences if sentence]
    return [sentences[first : first + size] for first in range(0, len(sentences), size)]


def check_corpus_encoder(tokenizer, texts: list[str], encode=None, is_exact: bool = True) -> None:
    """Checks that documents are encoded whole, and that each sentence ends where a prefix of its document would.

    encode: (texts) -> ids of each; by default the tokenizer's. is_exact: False if rounding in the library makes the ids
    of a few words depend on the words around them.
    """
    documents = as_documents(texts)
    expected = (encode or tokenizer.encode)([" ".join(document) for document in documents])
    ids, ends = tokenizer.corpus_encoder()([*documents, []])
    assert ids.dtype == np.int32 and ends.dtype == np.int64
    assert ids.tolist() == [number for ids in expected for number in ids]
    last = np.cumsum([len(document) for document in documents]) - 1
    assert ends[last].tolist() == np.cumsum([len(ids) for ids in expected]).tolist()
    starts = [0, *ends[last].tolist()]
    prefixes = [" ".join(d[: n + 1]) for d in documents for n in range(len(d))]
    sizes = [len(ids) for ids in tokenizer.encode(prefixes)]
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    differing = np.abs(ends - np.array(starts)[owners] - sizes)
    assert differing.max() <= (0 if is_exact else 2) and (differing > 0).mean() < 0.01
