"""Tokenizers behind one small interface: ids, special ids, word starts, training, saving.

What cuts the text is in bert_jax/tokenizers: WordPiece (vocab.txt), SentencePiece (.model) and
whatever a Hugging Face tokenizer.json says. Each file there has a class with what Tokenizer asks for,
`given` for the files of others, `read` for those that its `write` wrote, and `train`.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bert_jax.errors import BadInput
from bert_jax.storage import regular_files
from bert_jax.tokenizers import huggingface, sentencepiece, wordpiece
from bert_jax.tokenizers.encode_cache import Table
from bert_jax.tokenizers.special_tokens import SPECIAL, literal

SAVED = {module.KIND: module for module in (wordpiece, sentencepiece, huggingface)}


class Tokenizer:
    """Text to ids of a fixed list of pieces, and back.

    pieces: list[str], by id. special: {'pad': id, 'unk': id, 'cls': id, 'sep': id, 'mask': id}; `pad`, `unk`, `cls`,
    `sep` and `mask` are those ids too.
    """

    def __init__(
        self, model: wordpiece.WordPiece | sentencepiece.SentencePiece | huggingface.Library
    ):
        self.model = model
        self.pieces, self.special = model.pieces, model.special
        self.pad, self.unk, self.cls, self.sep, self.mask = map(self.special.get, SPECIAL)

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def file(self) -> str:
        """The name of the file that `save` writes beside settings.json."""
        return SAVED[self.model.kind].FILE

    @property
    def word_starts(self) -> np.ndarray:
        """bool[size]: whether a piece begins a word; special pieces do."""
        return self.model.word_starts

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of all that decides the ids."""
        text = json.dumps([self.model.kind, *self.model.identity])
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text; no special piece is added, and none but [UNK] is read from a text."""
        return self.model.encode(texts)

    def table(self) -> Table:
        """What encodes whole corpora: `.encode(texts) -> (int32[T] ids, int64[len(texts)] ends)`."""
        return self.model.table()

    def encode_with_masks(self, text: str) -> list[int]:
        """Ids of a text in which [MASK], [SEP] and [CLS] (or <mask>, </s> and <s>, if the pieces are
        called that) mean the special pieces."""
        pattern, special = literal(self.pieces, self.special)
        ids, glued = [], False
        for part in pattern.split(text):
            if part in special:
                ids.append(special[part])
            elif part.strip():
                ids += self.encode_part(part.strip(), glued and not part[0].isspace())
            glued = part in special
        return ids

    def encode_part(self, text: str, glued: bool) -> list[int]:
        """The ids of a part of a text, at a word's start unless it is glued to what stands before."""
        mark = self.model.mark
        if mark and glued:
            return self.model.encode_inside(text)
        ids = self.encode([text])[0]
        if not mark or not ids or self.pieces[ids[0]].startswith(mark):
            return ids
        return self.encode([f" {text}"])[0]

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text: pieces joined into words."""
        return self.model.decode([int(number) for number in ids]).removeprefix(" ")

    def readable(self, number: int) -> str:
        """One piece as people can read it: bytes as characters, a space as "▁"."""
        return self.model.readable(int(number))

    def save(self, directory: str | Path) -> None:
        """Writes settings.json, and vocab.txt, sentencepiece.model or tokenizer.json, as others read them."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"kind": self.model.kind, **self.model.write(directory)}
        (directory / "settings.json").write_text(json.dumps(settings) + "\n")


def load(directory: str | Path) -> Tokenizer:
    """The tokenizer that `save` wrote."""
    path = Path(directory) / "settings.json"
    try:
        settings = json.loads(regular_files.text(path))
        kind = settings["kind"]
        if kind not in SAVED:
            raise BadInput(f"{path}: kind {kind!r}, expected one of {', '.join(SAVED)}")
        return Tokenizer(SAVED[kind].read(Path(directory), settings))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; not a saved tokenizer") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: not a saved tokenizer ({error})") from None


def given(path: str | Path, lowercase: bool) -> Tokenizer:
    """A tokenizer of a published file: vocab.txt (any .txt), a .model or a tokenizer.json (any .json).

    lowercase: for vocab.txt; the others know theirs.
    """
    path = Path(path)
    if path.suffix == ".txt":
        return Tokenizer(wordpiece.given(path, lowercase))
    if path.suffix == ".model":
        return Tokenizer(sentencepiece.given(path))
    if path.suffix == ".json":
        return Tokenizer(huggingface.given(path))
    raise BadInput(f"{path}: expected a vocab.txt, a .model or a tokenizer.json")


def train(kind: str, texts: Iterable[str], size: int, lowercase: bool) -> Tokenizer:
    """A vocabulary of `size` pieces, special ones first; equal texts give equal ones. Holds the texts in memory.

    kind: wordpiece or byte_bpe (`size` at most), unigram or bpe (`size` exactly). Raises BadInput where `size` is too
    small or too large for the texts.
    """
    texts = list(texts)
    if kind == "wordpiece":
        return Tokenizer(wordpiece.train(texts, size, lowercase))
    if kind == "byte_bpe":
        return Tokenizer(huggingface.train(texts, size, lowercase))
    return Tokenizer(sentencepiece.train(kind, texts, size, lowercase))
