"""WordPiece behind one small interface: ids, special ids, word starts, training, saving.

Pieces are cut by the Hugging Face `tokenizers` library with BERT's normalizer and pre-tokenizer, so
ids equal those of transformers' BertTokenizer. `WordTable` gives the same ids faster, for whole
corpora.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from bert_jax.errors import BadInput

SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
LITERAL = re.compile(r"(\[MASK\]|\[SEP\]|\[CLS\])")

# Longer words are [UNK]. The original program says 200; transformers, whose ids ours equal, 100.
LONGEST_WORD = 100

# Characters outside this share of the training text become [UNK]: a rare script would fill a small
# vocabulary.
COVERAGE = 0.9999

# Characters that BERT's rules make words of their own: ASCII punctuation and ideographs (the common
# block of them).
SINGLE = r"!-/:-@\[-`{-~\u4e00-\u9fff"
ALONE = re.compile(rf"[{SINGLE}]")

# The units of a WordTable: a line break, a character of its own, or a run of anything between those
# and white space. BERT's rules part words at all of these and look at nothing across them, so the
# ids of a text are the ids of its units, one after the other. Other white space and control
# characters are left inside of a unit to the library.
UNITS = re.compile(rf"[^ \t\r\n{SINGLE}]+|[{SINGLE}]|\n")


class Tokenizer:
    """Text to ids of a fixed list of pieces, and back; `pad`, `unk`, `cls`, `sep`, `mask` are ids."""

    def __init__(self, pieces: list[str], lowercase: bool):
        self.pieces = list(pieces)
        self.lowercase = lowercase
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        self.pad, self.unk, self.cls, self.sep, self.mask = map(vocabulary.get, SPECIAL.values())
        # No special piece is added to the library's tokenizer: "[MASK]" in a document stays three
        # words.
        self._library = wordpiece(vocabulary, lowercase)

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def special(self) -> dict[str, int]:
        """{'pad': id, 'unk': id, 'cls': id, 'sep': id, 'mask': id}."""
        return {name: getattr(self, name) for name in SPECIAL}

    @property
    def word_starts(self) -> np.ndarray:
        """bool[size]: whether a piece begins a word."""
        return np.array([not piece.startswith("##") for piece in self.pieces])

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of all that decides the ids."""
        return vocabulary_digest(self.pieces, self.lowercase)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text; no special piece is added, and none is read from a text."""
        batch = self._library.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def encode_with_masks(self, text: str) -> list[int]:
        """Ids of a text in which [MASK], [SEP] and [CLS] mean the special pieces."""
        special = {"[MASK]": self.mask, "[SEP]": self.sep, "[CLS]": self.cls}
        ids = []
        for part in LITERAL.split(text):
            ids += [special[part]] if part in special else self.encode([part])[0]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text: pieces joined into words, special pieces as they are."""
        return self._library.decode([int(number) for number in ids], skip_special_tokens=False)

    def table(self):
        return WordTable(self)

    def save(self, directory: str | Path) -> None:
        """Writes vocab.txt, as others read it, and tokenizer.json (kind and case)."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        text = "".join(piece + "\n" for piece in self.pieces)
        (directory / "vocab.txt").write_text(text, encoding="utf-8", newline="\n")
        settings = {"kind": "wordpiece", "lowercase": self.lowercase}
        (directory / "tokenizer.json").write_text(json.dumps(settings) + "\n")


def wordpiece(vocabulary: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    model = WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    library = tokenizers.Tokenizer(model)
    library.normalizer = BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = BertPreTokenizer()
    library.decoder = WordPieceDecoder()
    return library


def vocabulary_digest(pieces: list[str], lowercase: bool) -> str:
    text = json.dumps(["wordpiece", lowercase, pieces])
    return hashlib.sha256(text.encode()).hexdigest()


def load(directory: str | Path) -> Tokenizer:
    """The tokenizer that `save` wrote."""
    path = Path(directory) / "tokenizer.json"
    try:
        settings = json.loads(path.read_text())
        kind, lowercase = settings["kind"], settings["lowercase"]
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; not a saved tokenizer") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: not a saved tokenizer ({error})") from None
    if kind != "wordpiece":
        raise BadInput(f"{path}: kind {kind!r}, expected wordpiece")
    return from_vocab(Path(directory) / "vocab.txt", lowercase)


def from_vocab(path: str | Path, lowercase: bool) -> Tokenizer:
    """A tokenizer of a published vocab.txt: one piece a line, its id the line's number from 0."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot read the vocabulary ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a vocabulary (not UTF-8)") from None
    # Not splitlines: a piece may be a Unicode line separator.
    pieces = text.removesuffix("\n").split("\n")
    lines = {}
    for number, piece in enumerate(pieces, 1):
        if piece in lines:
            raise BadInput(
                f"{path}: piece {piece!r} on line {lines[piece]} and again on line {number}"
            )
        lines[piece] = number
    for piece in SPECIAL.values():
        if piece not in lines:
            raise BadInput(f"{path}: no piece {piece} among its {len(pieces)}")
    return Tokenizer(pieces, lowercase)


def given(path: str | Path, lowercase: bool) -> Tokenizer:
    return from_vocab(path, lowercase)


def train(kind: str, texts: Iterable[str], size: int, lowercase: bool) -> Tokenizer:
    """A vocabulary of at most `size` pieces, special ones first; equal texts give equal ones.

    Texts are read twice; those of an iterator, which can be read but once, are kept in memory.
    """
    texts = list(texts) if iter(texts) is texts else texts
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
    library = wordpiece({"[UNK]": 0}, lowercase)
    trainer = WordPieceTrainer(
        vocab_size=size,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        special_tokens=first,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    vocabulary = library.get_vocab()
    return Tokenizer(sorted(vocabulary, key=vocabulary.get), lowercase)


def alphabet(texts: Iterable[str], lowercase: bool) -> list[str]:
    """The commonest characters, as far as COVERAGE goes, and all of ASCII, by code point."""
    normalizer = BertNormalizer(lowercase=lowercase)
    counts = np.zeros(0x110000, np.int64)
    for text in texts:
        codes = np.frombuffer(normalizer.normalize_str(text).encode("utf-32-le"), np.uint32)
        found = np.bincount(codes)
        counts[: len(found)] += found
    counts[: ord(" ") + 1] = 0
    order = np.argsort(-counts, kind="stable")
    kept = np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum()) + 1
    return [chr(code) for code in sorted({*order[:kept], *range(128)}) if counts[code]]


class WordTable:
    """Encodes many texts, remembering units already seen: several times as fast as the library."""

    def __init__(self, tokenizer: Tokenizer, units: int = 1 << 19, characters: int = 1 << 24):
        self.tokenizer = tokenizer
        self.limits = units, characters
        self.clear()

    def clear(self) -> None:
        self.numbers = {"\n": 0}  # unit -> its place in the arrays below
        self.characters = 0
        self.lengths = np.zeros(1, np.int64)
        self.starts = np.zeros(1, np.int64)
        self.pieces = np.zeros(0, np.int32)

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """int32[T] ids of the texts, one after the other; int64[len(texts)] where each text ends."""
        if not texts:
            return self.pieces[:0], np.zeros(0, np.int64)
        joined = "\n".join(texts) + "\n"
        if joined.count("\n") != len(texts):
            joined = "\n".join(text.replace("\n", " ") for text in texts) + "\n"
        units = UNITS.findall(joined)
        self.learn(set(units))
        numbers = np.fromiter(map(self.numbers.__getitem__, units), np.int32, len(units))
        lengths = self.lengths[numbers]
        ends = np.cumsum(lengths)
        places = np.repeat(self.starts[numbers] - (ends - lengths), lengths)
        places += np.arange(len(places))
        return self.pieces[places], ends[numbers == 0]

    def learn(self, units: set[str]) -> None:
        if len(self.numbers) > self.limits[0] or self.characters > self.limits[1]:
            self.clear()
        new = list(units.difference(self.numbers))
        if not new:
            return
        ids = self.tokenizer.encode(new)
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        starts = len(self.pieces) + np.cumsum(lengths) - lengths
        flat = np.fromiter((piece for unit in ids for piece in unit), np.int32, lengths.sum())
        self.numbers.update(
            zip(new, range(len(self.numbers), len(self.numbers) + len(new)), strict=True)
        )
        self.characters += sum(map(len, new))
        self.lengths = np.concatenate([self.lengths, lengths])
        self.starts = np.concatenate([self.starts, starts])
        self.pieces = np.concatenate([self.pieces, flat])
