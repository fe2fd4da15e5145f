"""BERT's WordPiece: a vocab.txt, and whether text is lower-cased.

Text is encoded by the Hugging Face `tokenizers` library with BERT's normalizer and pre-tokenizer, so ids equal those of
transformers' BertTokenizer.
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
from bert_jax.tokenizers.corpus_encoder import CachedEncoder
from bert_jax.tokenizers.sample import COVERAGE
from bert_jax.tokenizers.special_tokens import ALL, SPECIAL, find_ids

KIND = "wordpiece"
FILE = "vocab.txt"

# Characters; longer words are [UNK]. BERT's original code has 200; transformers, whose ids these equal, 100.
LONGEST_WORD = 100

# Characters that BERT's rules treat as single words: ASCII punctuation, and the main block of CJK
# ideographs.
SINGLE = r"!-/:-@\[-`{-~\u4e00-\u9fff"
ALONE = re.compile(rf"[{SINGLE}]")

# Units for the cache: a line break, a single-word character, or a run of other characters without
# white space. BERT's rules split words at all of these and depend on nothing across them, so the
# ids of a text are the concatenated ids of its units. Other white space and control characters stay
# inside a unit; the library splits it there.
UNITS = re.compile(rf"[^ \t\r\n{SINGLE}]+|[{SINGLE}]|\n")


class WordPiece(Tokenizer):
    """The tokenizer of a vocab.txt, in which "##" begins pieces that continue a word."""

    kind = KIND
    file = FILE
    continues = "##"

    def __init__(self, pieces: list[str], lowercase: bool):
        special, _ = find_ids(pieces, {}, {}, False)
        if ALL["end"] in pieces:  # which the rules never make of a text
            special["end"] = pieces.index(ALL["end"])
        super().__init__(pieces, special)
        self.lowercase = lowercase
        # The library's tokenizer has no added special tokens, so "[MASK]" in a document is encoded as
        # three words.
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        self.tokenizer = make_library(vocabulary, lowercase)
        self.tokenizer.model.unk_token = pieces[self.unk]

    @property
    def identity(self) -> list:
        return [self.lowercase, self.pieces]

    def append(self, pieces: list[str], special: dict[str, int]) -> "WordPiece":
        return WordPiece([*self.pieces, *pieces], self.lowercase)

    def corpus_encoder(self) -> CachedEncoder:
        return CachedEncoder(self.encode, UNITS)

    def write(self, directory: Path) -> dict:
        text = "".join(piece + "\n" for piece in self.pieces)
        (directory / FILE).write_text(text, encoding="utf-8")
        return {"lowercase": self.lowercase}


def read(directory: Path, settings: dict) -> WordPiece:
    """Reads a tokenizer that `save` wrote."""
    return from_file(directory / FILE, settings["lowercase"], False)


def make_library(vocabulary: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    """Builds the library's tokenizer with BERT's rules. vocabulary: {piece: id}."""
    model = WordPieceModel(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    library = tokenizers.Tokenizer(model)
    library.normalizer = BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = BertPreTokenizer()
    library.decoder = WordPieceDecoder()
    return library


def from_file(path: Path, lowercase: bool, add_special: bool) -> WordPiece:
    """Reads a vocab.txt: one piece per line; its id is the line number, from 0. Raises BadInput.

    add_special: appends the special tokens that it lacks.
    """
    pieces = read_pieces(path)
    for piece, number in Counter(pieces).items():
        if number > 1:
            raise BadInput(f"{path}: several lines have the piece {piece!r}")
    special, appended = find_ids(pieces, {}, {}, add_special)
    if "unk" not in special:
        raise BadInput(f"{path}: lacks {SPECIAL['unk']} among its {len(pieces)} pieces")
    return WordPiece(pieces + appended, lowercase)


def read_pieces(path: Path) -> list[str]:
    """Returns the lines of a vocab.txt."""
    text = path.read_text(encoding="utf-8-sig").removesuffix("\n")
    return text.split("\n")  # not splitlines(): a piece may be a Unicode line separator


def train(texts: list[str], size: int, lowercase: bool) -> WordPiece:
    """Trains a vocabulary of at most `size` pieces, special tokens first. Deterministic."""
    letters = alphabet(texts, lowercase)
    # The library numbers single characters in the order of a hash map, and breaks ties between
    # merges by number. Passing them as special tokens, whose order it keeps, makes training
    # deterministic.
    initial = [*SPECIAL.values(), *letters]
    initial += [f"##{letter}" for letter in letters if not ALONE.match(letter)]
    if len(initial) > size:
        raise BadInput(
            f"config.tokenizer.size={size}: too small, single characters need {len(initial)}"
        )
    library = make_library({"[UNK]": 0}, lowercase)
    trainer = WordPieceTrainer(
        vocab_size=size,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        special_tokens=initial,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    vocabulary = library.get_vocab()
    return WordPiece(sorted(vocabulary, key=vocabulary.get), lowercase)


def alphabet(texts: list[str], lowercase: bool) -> list[str]:
    """Returns the most frequent characters up to COVERAGE and all ASCII characters of the texts, by code point."""
    normalizer = BertNormalizer(lowercase=lowercase)
    counts = np.zeros(0x110000, np.int64)  # by code point
    for text in texts:
        letters = normalizer.normalize_str(text).encode("utf-32-le")
        np.add.at(counts, np.frombuffer(letters, np.uint32), 1)
    counts[: ord(" ") + 1] = 0
    order = np.argsort(-counts, kind="stable")
    covered = np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum()) + 1
    codes = {*order[:covered], *range(128)}
    return [chr(code) for code in sorted(codes) if counts[code]]
