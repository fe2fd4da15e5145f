"""What every kind of tokenizer can do: ids, special ids, word starts, saving."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from bert_jax.tokenizers.encode_cache import Table
from bert_jax.tokenizers.special_tokens import SPECIAL, literal

# By the mark: a character with which nothing behind it makes a piece. One for private use is in no text that a
# vocabulary was trained on; byte-level rules take that for punctuation, but join nothing to a line break before it.
APART = {"▁": "\ue000", "Ġ": "\n"}


class Tokenizer:
    """Text to ids of a fixed list of pieces, and back.

    pieces: list[str], by id. special: {'pad': id, 'unk': id, 'cls': id, 'sep': id, 'mask': id}; `pad`, `unk`, `cls`,
    `sep` and `mask` are those ids too. Each kind has beside

        kind, file       its name in settings.json; the name of the file that `save` writes beside that
        mark             what begins pieces that begin a word, or '' where the others are marked
        word_starts      bool[size]: whether a piece begins a word; special pieces do
        identity         all that decides the ids, as JSON has it
        encode(texts)    ids of each text; no special piece is added, and none but [UNK] is read from a text
        join(ids)        text: pieces joined into words
        write(directory) writes `file`, as others read it; returns its settings
    """

    kind: str
    file: str
    mark = ""

    def __init__(self, pieces: list[str], special: dict[str, int]):
        self.pieces, self.special = pieces, special
        self.pad, self.unk, self.cls, self.sep, self.mask = map(special.get, SPECIAL)

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of all that decides the ids."""
        return hashlib.sha256(json.dumps([self.kind, *self.identity]).encode()).hexdigest()

    def table(self) -> Table:
        """What encodes whole corpora: `.encode(texts) -> (int32[T] ids, int64[len(texts)] ends)`."""
        return Table(self.encode)

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
        ids = self.encode([text])[0]
        if not self.mark or not ids:
            return ids
        first = self.pieces[ids[0]]
        if not glued:
            return ids if first.startswith(self.mark) else self.encode([f" {text}"])[0]
        if self.mark == "▁" and first == self.mark:
            return ids[1:]
        ids, before = self.encode([APART[self.mark] + text, APART[self.mark]])
        return ids[len(before) :]

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text."""
        return self.join(list(map(int, ids))).removeprefix(" ")

    def readable(self, number: int) -> str:
        """One piece as people can read it: bytes as characters, a space as "▁"."""
        return self.pieces[number]

    def save(self, directory: str | Path) -> None:
        """Writes settings.json, and vocab.txt, sentencepiece.model or tokenizer.json, as others read them."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"kind": self.kind, **self.write(directory)}
        (directory / "settings.json").write_text(json.dumps(settings) + "\n")
