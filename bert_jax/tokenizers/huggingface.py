"""Tokenizers of the Hugging Face `tokenizers` library: an existing tokenizer.json, or trained byte-level BPE.

Ids equal those of the library and of transformers' fast tokenizers, except that special tokens are not read from text.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from bert_jax.errors import BadInput, one_line
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.corpus_encoder import CachedEncoder, whole
from bert_jax.tokenizers.sample import lines
from bert_jax.tokenizers.special_tokens import SPECIAL, added_token, ban, check_ids, find_ids

KIND = "library"
FILE = "tokenizer.json"
MARKS = "▁Ġ"  # prefixes of pieces that begin a word; byte-level pieces never contain the first
# Units for the cache: byte-level rules begin a new word at every single space between two other
# characters, whatever comes before. Other white space stays inside a unit.
SPACED = re.compile(r"[^\S\n]*\S+(?:(?! \S)[^\S\n]+\S*)*|[^\S\n]+|\n")


class HuggingFace(Tokenizer):
    """The tokenizer of a tokenizer.json. document: the parsed file, in which all special tokens are added tokens."""

    kind, file = KIND, FILE

    def __init__(self, document: dict, special: dict[str, int], path: object = FILE):
        self.document, self.tokenizer = document, open_library(document, path)
        super().__init__(list_pieces(self.tokenizer, path), special)
        self.mark, self.continues = word_marks(document["model"], self.pieces, path)

    @property
    def word_starts(self) -> np.ndarray:
        mark = self.mark or self.continues
        marked = np.array([piece.startswith(mark) for piece in self.pieces])
        starts = marked if self.mark else ~marked
        starts[[token["id"] for token in self.document["added_tokens"]]] = True
        return starts

    @property
    def identity(self) -> list:
        return [self.document, self.special]

    def encode(self, texts: list[str]) -> list[list[int]]:
        batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        # A Unigram model contains its special tokens as pieces, and uses them.
        return ban((encoding.ids for encoding in batch), self.special)

    def readable(self, number: int) -> str:
        """Returns a piece in readable form: bytes as characters, a space as "▁"."""
        if self.mark != "Ġ":
            return self.pieces[number]
        return self.tokenizer.decode([int(number)], skip_special_tokens=False).replace(" ", "▁")

    def corpus_encoder(self) -> Callable:
        if pattern := unit_pattern(self.document):
            return CachedEncoder(self.encode, pattern)
        return partial(whole, self.encode_with_offsets)

    def write(self, directory: Path) -> dict:
        text = json.dumps(self.document, ensure_ascii=False, indent=1)
        (directory / FILE).write_text(text + "\n", encoding="utf-8", newline="\n")
        return {"special": self.special}


def open_library(document: dict, path: object) -> tokenizers.Tokenizer:
    """Opens a parsed tokenizer.json with the library. Raises BadInput that names `path`."""
    try:
        library = tokenizers.Tokenizer.from_str(json.dumps(document, ensure_ascii=False))
    except BaseException as error:  # a panic in Rust is not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadInput(f"{path}: not a tokenizer ({one_line(error)})") from None
    library.encode_special_tokens = True  # encodes "[MASK]" in a document as text
    return library


def list_pieces(library: tokenizers.Tokenizer, path: object) -> list[str]:
    """Returns the pieces by id. Raises BadInput if ids have gaps or are shared."""
    vocabulary = library.get_vocab()
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise BadInput(f"{path}: ids have gaps, or several pieces share an id")
    return sorted(vocabulary, key=vocabulary.get)


def word_marks(model: dict, pieces: list[str], path: object) -> tuple[str, str]:
    """Returns the prefixes of pieces that begin a word and of pieces that continue one; one of the two is ''."""
    if model.get("type") == "WordPiece":
        return "", model.get("continuing_subword_prefix") or "##"
    for mark in MARKS:
        if any(piece.startswith(mark) for piece in pieces):
            return mark, ""
    if model.get("continuing_subword_prefix"):
        return "", model["continuing_subword_prefix"]
    raise BadInput(f"{path}: its pieces do not mark where words start (no ##, ▁ or Ġ)")


def unit_pattern(document: dict) -> re.Pattern | None:
    """Returns the pattern of units that can be encoded one by one; None if the rules are not known to allow it."""
    if not all(token["special"] for token in document["added_tokens"]):
        return None
    normalizer, splitter = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    name = normalizer.get("type")
    if splitter.get("type") == "ByteLevel" and splitter.get("use_regex", True):
        return SPACED if name in (None, "Lowercase") else None
    bert = splitter.get("type") == "BertPreTokenizer" and name == "BertNormalizer"
    if bert and normalizer["handle_chinese_chars"] and document["model"]["type"] == "WordPiece":
        return wordpiece.UNITS
    return None


def read(directory: Path, settings: dict) -> HuggingFace:
    """Reads a tokenizer that `save` wrote."""
    path = directory / FILE
    document = json.loads(path.read_text(encoding="utf-8"))
    tokenizer = HuggingFace(document, settings["special"], path)
    check_ids(tokenizer.special, tokenizer.size, path)
    return tokenizer


def from_file(path: Path) -> HuggingFace:
    """Reads an external tokenizer.json; special tokens that it lacks get the ids after its last."""
    document = json.loads(path.read_text(encoding="utf-8"))
    pieces = list_pieces(open_library(document, path), path)
    special, _ = find_ids(pieces, unknown_id(document["model"], pieces))
    tokens = [dict(token) for token in document.get("added_tokens") or []]
    mark_special(tokens, pieces, special)
    # Texts must not be truncated or padded by the library.
    document |= {"added_tokens": tokens, "truncation": None, "padding": None}
    tokenizer = HuggingFace(document, special, path)
    check_ids(special, tokenizer.size, path)
    return tokenizer


def unknown_id(model: dict, pieces: list[str]) -> dict[str, int]:
    """Returns {'unk': id} of the model's unknown token; {} if it has none."""
    number = model.get("unk_id")
    if model.get("unk_token") in pieces:
        number = pieces.index(model["unk_token"])
    return {} if number is None else {"unk": number}


def mark_special(tokens: list[dict], pieces: list[str], special: dict[str, int]) -> None:
    """Adds every special token to the special added tokens, which the library does not read from text."""
    by_id = {token["id"]: token for token in tokens}
    for name, number in special.items():
        if number not in by_id:
            content = pieces[number] if number < len(pieces) else SPECIAL[name]
            by_id[number] = added_token(content, number)
            tokens.append(by_id[number])
        by_id[number]["special"] = True
    tokens.sort(key=lambda token: token["id"])


def train(texts: list[str], size: int, lowercase: bool) -> HuggingFace:
    """Trains byte-level BPE with at most `size` pieces, special tokens and all bytes first. Deterministic.

    lowercase: lower-cases, and keeps accents. A space is added before each text, so that its first word is encoded like
    any other. Text never encodes to [UNK], which exists all the same.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(SPECIAL) + len(alphabet)
    if size < least:
        raise BadInput(f"config.tokenizer.size={size}: too small, single bytes need {least}")
    library = tokenizers.Tokenizer(BPE())
    if lowercase:
        library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    library.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=sorted(alphabet),
        special_tokens=list(SPECIAL.values()),
        show_progress=False,
    )
    library.train_from_iterator(lines(texts), trainer)
    special = {name: number for number, name in enumerate(SPECIAL)}
    return HuggingFace(json.loads(library.to_str()), special)
