"""WordPiece, as BERT has it: a vocab.txt and whether it is lower-cased.

Pieces are cut by the Hugging Face `tokenizers` library with BERT's normalizer and pre-tokenizer, so
ids equal those of transformers' BertTokenizer.
"""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece as WordPieceModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from bert_jax.errors import BadInput
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.encode_cache import Table
from bert_jax.tokenizers.sample import COVERAGE
from bert_jax.tokenizers.special_tokens import SPECIAL

KIND = "wordpiece"
FILE = "vocab.txt"

# Longer words are [UNK]. The original program says 200; transformers, whose ids ours equal, 100.
LONGEST_WORD = 100

# Characters that BERT's rules make words of their own: ASCII punctuation and ideographs (the common
# block of them).
SINGLE = r"!-/:-@\[-`{-~\u4e00-\u9fff"
ALONE = re.compile(rf"[{SINGLE}]")

# Units for Table: a line break, a character of its own, or a run of anything between those
# and white space. BERT's rules part words at all of these and look at nothing across them, so the
# ids of a text are the ids of its units, one after the other. Other white space and control
# characters are left inside of a unit to the library.
UNITS = re.compile(rf"[^ \t\r\n{SINGLE}]+|[{SINGLE}]|\n")


class WordPiece(Tokenizer):
    """A fixed list of pieces, "##" before those that continue a word."""

    kind, file = KIND, FILE

    def __init__(self, pieces: list[str], lowercase: bool):
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        super().__init__(list(pieces), {name: vocabulary[piece] for name, piece in SPECIAL.items()})
        self.lowercase = lowercase
        # No special piece is added to the library's tokenizer: "[MASK]" in a document stays three
        # words.
        self.tokenizer = make_library(vocabulary, lowercase)

    @property
    def word_starts(self) -> np.ndarray:
        return np.array([not piece.startswith("##") for piece in self.pieces])

    @property
    def identity(self) -> list:
        return [self.lowercase, self.pieces]

    def encode(self, texts: list[str]) -> list[list[int]]:
        batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def join(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def table(self) -> Table:
        return Table(self.encode, UNITS)

    def write(self, directory: Path) -> dict:
        text = "".join(piece + "\n" for piece in self.pieces)
        (directory / FILE).write_text(text, encoding="utf-8", newline="\n")
        return {"lowercase": self.lowercase}


def read(directory: Path, settings: dict) -> WordPiece:
    return given(directory / FILE, settings["lowercase"])


def make_library(vocabulary: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    model = WordPieceModel(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    library = tokenizers.Tokenizer(model)
    library.normalizer = BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = BertPreTokenizer()
    library.decoder = WordPieceDecoder()
    return library


def given(path: Path, lowercase: bool) -> WordPiece:
    """A published vocab.txt: one piece a line, its id the line's number from 0."""
    # Not splitlines: a piece may be a Unicode line separator.
    pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    twice = next((piece for piece, number in Counter(pieces).items() if number > 1), None)
    if twice is not None:
        raise BadInput(f"{path}: piece {twice!r} on several lines")
    for piece in SPECIAL.values():
        if piece not in pieces:
            raise BadInput(f"{path}: no piece {piece} among its {len(pieces)}")
    return WordPiece(pieces, lowercase)


def train(texts: list[str], size: int, lowercase: bool) -> WordPiece:
    """A vocabulary of at most `size` pieces, special ones first; equal texts give equal ones."""
    letters = alphabet(texts, lowercase)
    # The library numbers the letters' pieces in the order of a hash map, and breaks ties between
    # merges by number. So that training is deterministic it is given them as special pieces, whose
    # order it keeps.
    first = [
        *SPECIAL.values(),
        *letters,
        *(f"##{letter}" for letter in letters if not ALONE.match(letter)),
    ]
    if len(first) > size:
        raise BadInput(
            f"config.tokenizer.size={size}: too few, single characters alone take {len(first)}"
        )
    library = make_library({"[UNK]": 0}, lowercase)
    trainer = WordPieceTrainer(
        vocab_size=size,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        special_tokens=first,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    vocabulary = library.get_vocab()
    return WordPiece(sorted(vocabulary, key=vocabulary.get), lowercase)


def alphabet(texts: list[str], lowercase: bool) -> list[str]:
    """The commonest characters, as far as COVERAGE goes, and all of ASCII, by code point."""
    normalizer, letters = BertNormalizer(lowercase=lowercase), np.zeros(0x110000, np.int64)
    for text in texts:
        codes = np.frombuffer(normalizer.normalize_str(text).encode("utf-32-le"), np.uint32)
        np.add.at(letters, codes, 1)
    letters[: ord(" ") + 1] = 0
    order = np.argsort(-letters, kind="stable")
    kept = np.searchsorted(np.cumsum(letters[order]), COVERAGE * letters.sum()) + 1
    return [chr(code) for code in sorted({*order[:kept], *range(128)}) if letters[code]]
