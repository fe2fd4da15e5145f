"""BERT's WordPiece: a vocab.txt, whether text is lower-cased, and whether it then keeps its accents.

Text is encoded by the Hugging Face `tokenizers` library with BERT's normalizer and pre-tokenizer, so ids equal those of
transformers' BertTokenizer.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece as WordPieceModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from bert_jax.errors import BadInput
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.corpus_encoder import CachedEncoder
from bert_jax.tokenizers.special_tokens import ALL, SPECIAL, find_ids
from bert_jax.tokenizers.training import Training

KIND = "wordpiece"
FILE = "vocab.txt"

# Characters; longer words are [UNK]. BERT's original code has 200; transformers, whose ids these equal, 100.
MAX_WORD = 100

# Characters that BERT's rules treat as single words: ASCII punctuation, and the main block of CJK
# ideographs.
SINGLE = "[!-/:-@\\[-`{-~\u4e00-\u9fff]"
ALONE = re.compile(SINGLE)

PARTS = 100  # of the text to train on, which are split one by one
REPEATS = 1 << 13  # of a word in a text: threads count the words of several


def split(text: str) -> tuple[list[str], np.ndarray]:
    """Returns the distinct units of a text, and int32[N], which of them its units are: line breaks, characters of
    SINGLE, runs of others without spaces, "".

    BERT's rules split words at all of these and depend on nothing across them, so the ids of a text are the
    concatenated ids of its units. Other white space and control characters stay inside a unit; the library splits it
    there.
    """
    import pyarrow  # which machines that read only saved batches lack
    from pyarrow import compute

    data = text.encode()
    ends = pyarrow.py_buffer(np.array([0, len(data)]))
    # pyarrow.array would import pandas, where it is installed.
    texts = pyarrow.LargeStringArray.from_buffers(1, ends, pyarrow.py_buffer(data))
    apart = compute.replace_substring_regex(texts, rf"(\n|{SINGLE})", r" \1 ")
    encoded = compute.split_pattern(apart, " ").flatten().dictionary_encode()
    return encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices)


class WordPiece(Tokenizer):
    """The tokenizer of a vocab.txt, in which "##" begins pieces that continue a word."""

    kind = KIND
    file = FILE
    continues = "##"

    def __init__(self, pieces: list[str], lowercase: bool, keep_accents: bool = False):
        special, _ = find_ids(pieces, {}, {}, False)
        if ALL["end"] in pieces:  # which the rules never make of a text
            special["end"] = pieces.index(ALL["end"])
        super().__init__(pieces, special)
        self.lowercase = lowercase
        self.keep_accents = keep_accents
        # The library's tokenizer has no added special tokens, so "[MASK]" in a document is encoded as
        # three words.
        vocabulary = {piece: index for index, piece in enumerate(pieces)}
        self.tokenizer = make_library(vocabulary, make_normalizer(lowercase, keep_accents))
        self.tokenizer.model.unk_token = pieces[self.unk]

    @property
    def identity(self) -> list:
        identity = [self.lowercase, self.pieces]
        if self.keep_accents:  # older vocabularies have no such entry
            identity.append("keep_accents")
        return identity

    def append(self, pieces: list[str], special: dict[str, int]) -> "WordPiece":
        return WordPiece([*self.pieces, *pieces], self.lowercase, self.keep_accents)

    def corpus_encoder(self) -> CachedEncoder:
        library = tokenizers.Tokenizer.from_str(self.tokenizer.to_str())
        library.add_tokens([tokenizers.AddedToken("\n", normalized=False)])
        return CachedEncoder(functools.partial(encode_units, library), split)

    def write(self, directory: Path) -> dict:
        text = "".join(piece + "\n" for piece in self.pieces)
        (directory / FILE).write_text(text, encoding="utf-8")
        return {"lowercase": self.lowercase, "keep_accents": self.keep_accents}


def read(directory: Path, settings: dict) -> WordPiece:
    """Reads a tokenizer that `save` wrote."""
    keep_accents = settings.get("keep_accents", False)  # which older ones lack
    return from_file(directory / FILE, settings["lowercase"], False, keep_accents)


def encode_units(library: tokenizers.Tokenizer, units: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32[T], the ids of all units, and int64[len(units)], where those of each end.

    Encodes them as one text, which takes a third of the time. library: has a token of its own for a line break.
    """
    text = "".join(unit + "\n" for unit in units)
    [encoding] = library.encode_batch_fast([text], add_special_tokens=False)
    ids = np.array(encoding.ids, np.int32)
    breaks = np.flatnonzero(ids == library.token_to_id("\n"))
    return np.delete(ids, breaks), breaks - np.arange(len(breaks))


def make_library(vocabulary: dict[str, int], normalizer: BertNormalizer) -> tokenizers.Tokenizer:
    """Builds the library's tokenizer with BERT's rules. vocabulary: {piece: id}."""
    model = WordPieceModel(vocabulary, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizer
    library.pre_tokenizer = BertPreTokenizer()
    library.decoder = WordPieceDecoder()
    return library


def make_normalizer(lowercase: bool, keep_accents: bool) -> BertNormalizer:
    # None strips accents if text is lower-cased.
    return BertNormalizer(
        lowercase=lowercase,
        strip_accents=False if keep_accents else None,
    )


def from_file(path: Path, lowercase: bool, add_special: bool, keep_accents: bool) -> WordPiece:
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
    return WordPiece(pieces + appended, lowercase, keep_accents)


def read_pieces(path: Path) -> list[str]:
    """Returns the lines of a vocab.txt."""
    text = path.read_text(encoding="utf-8-sig").removesuffix("\n")
    return text.split("\n")  # not splitlines(): a piece may be a Unicode line separator


def train(texts: list[str], size: int, lowercase: bool, training: Training) -> WordPiece:
    """Trains a vocabulary of at most `size` pieces, special tokens first. Deterministic."""
    words = count_words(texts, make_normalizer(lowercase, training.keep_accents))
    letters = alphabet(words, training.coverage)
    # The library numbers single characters in the order of a hash map, and breaks ties between
    # merges by number. Passing them as special tokens, whose order it keeps, makes training
    # deterministic.
    initial = [*training.special_pieces, *letters]
    initial += [f"##{letter}" for letter in letters if not ALONE.match(letter)]
    if len(initial) > size:
        raise BadInput(
            f"config.tokenizer.size={size}: too small, single characters need {len(initial)}"
        )
    library = tokenizers.Tokenizer(WordPieceModel({"[UNK]": 0}, unk_token="[UNK]"))
    library.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=size,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        special_tokens=initial,
        show_progress=False,
    )
    library.train_from_iterator(repeat(words), trainer)
    vocabulary = library.get_vocab()
    pieces = sorted(vocabulary, key=vocabulary.get)
    return WordPiece(pieces, lowercase, training.keep_accents)


def count_words(texts: list[str], normalizer: BertNormalizer) -> Counter:
    """Returns the words of the texts by BERT's rules, which see each unit once: {word: how often it occurs}."""
    counted = Counter()
    for part in range(PARTS):
        units, numbers = split("\n".join(texts[part::PARTS]))
        counted.update(dict(zip(units, np.bincount(numbers).tolist(), strict=True)))
    splitter = BertPreTokenizer()
    words = Counter()
    for unit, number in counted.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(unit)):
            words[word] += number
    return words


def repeat(words: Counter) -> Iterator[str]:
    """Yields each word as often as it occurs, since the library takes no counts. A single character has nothing to
    merge."""
    for word, number in words.items():
        if len(word) > 1:
            whole, rest = divmod(number, REPEATS)
            yield from [f"{word} " * REPEATS] * whole
            yield f"{word} " * rest


def alphabet(words: Counter, coverage: float) -> list[str]:
    """Returns the most frequent characters up to the share `coverage`, and all ASCII characters of the words, by code
    point."""
    letters = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
    counts = np.zeros(0x110000, np.int64)  # by code point
    np.add.at(counts, letters, np.repeat(list(words.values()), list(map(len, words))))
    order = np.argsort(-counts, kind="stable")
    covered = np.searchsorted(np.cumsum(counts[order]), coverage * counts.sum()) + 1
    codes = {*order[:covered], *range(128)}
    return [chr(code) for code in sorted(codes) if counts[code]]
