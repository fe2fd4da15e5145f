"""The base class of all tokenizers: ids, special tokens, word starts, saving."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.errors import BadInput, one_line
from bert_jax.tokenizers.special_tokens import SPECIAL, ban, mask_pattern

# {word mark: a character that is never in one piece with the text after it}. For "▁" it is a private-use character,
# which is in no training text. Byte-level rules ("Ġ") treat that one as punctuation, which may be in a piece with other
# punctuation; a line break never is.
BARRIER = {"▁": "\ue000", "Ġ": "\n"}


@contextlib.contextmanager
def as_bad_input(path: object) -> Iterator[None]:
    """Converts errors and panics of the libraries, and errors of the file system, to BadInput that names `path`."""
    try:
        yield
    except BadInput:
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadInput(f"{path}: not a tokenizer ({one_line(error)})") from None


class Tokenizer:
    """A converter of text to ids of a fixed list of pieces (subword units).

    pieces: list[str], by id.
    special: {'pad': id, 'unk': id, 'cls': id, 'sep': id, 'mask': id, 'end': id}, without those that the vocabulary
        lacks. The attributes `pad`, `unk`, `cls`, `sep` and `mask` are the same; None for those that it lacks.
    path: the name of the tokenizer in errors.

    Each subclass defines

        kind, file       its name in settings.json; the name of the vocabulary file that `save` writes
        mark, continues  the prefixes of pieces that begin a word, or that continue one; at least one of the two is ''
        ends             or else the suffix of those that end one
        marks_words      whether pieces begin words by these prefixes, or are whole words
        identity         everything that decides the ids, as plain data for JSON
        append(pieces, special)    the same with more pieces that are in no text, and with these special ids
        tokenizer        that of the `tokenizers` library, unless it encodes in another way
        corpus_encoder() a function of corpus_encoder.py: (documents) -> their ids, and where their sentences end
        write(directory) writes `file` in the format of its library; returns the settings for settings.json
    """

    kind: str
    file: str
    mark = ""
    continues = ""
    ends = ""
    marks_words = True

    def __init__(self, pieces: list[str], special: dict[str, int], path: object = ""):
        self.pieces = pieces
        self.special = special
        self.path = path
        self.pad, self.unk, self.cls, self.sep, self.mask = map(special.get, SPECIAL)

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def spellings(self) -> dict[str, str]:
        """{name: piece} of the special tokens."""
        return {name: self.pieces[number] for name, number in self.special.items()}

    @property
    def added_ids(self) -> list[int]:
        """The ids of pieces that are not parts of words."""
        return list(self.special.values())

    @property
    def word_starts(self) -> np.ndarray:
        """bool[size]: whether a piece begins a word, or ends one if these are marked; true for special tokens, and for
        no others if pieces mark neither."""
        prefix = self.mark or self.continues
        marked = [piece.startswith(prefix) and piece.endswith(self.ends) for piece in self.pieces]
        starts = np.array(marked)
        if self.continues:
            starts = ~starts
        if not self.marks_words and not self.ends:
            starts[:] = False
        starts[self.added_ids] = True
        return starts

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of everything that decides the ids."""
        return hashlib.sha256(json.dumps([self.kind, *self.identity]).encode()).hexdigest()

    @property
    def rules(self) -> list:
        """`identity` without what decides no ids, by which tokenizers from several files compare."""
        return self.identity

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text; of the special tokens, only [UNK] can be among them."""
        with as_bad_input(self.path):
            batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            # A Unigram model contains its special tokens as pieces, and uses them.
            return ban((encoding.ids for encoding in batch), self.special)

    def decode(self, ids: list[int]) -> str:
        """Returns the text of ids without the special tokens, also [UNK], with the white space of its pieces.

        The text of a prompt and more ids begins with that of the prompt: a continuation is
        `decode(prompt + ids)[len(decode(prompt)) :]`. U+FFFD stands for bytes that are no whole character.
        """
        left_out = self.special.values()
        return self.decode_pieces([number for number in ids if number not in left_out])

    def decode_pieces(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of a text in which [MASK], [SEP] and [CLS] are special tokens.

        Their spellings in the vocabulary, such as <mask>, </s> and <s>, are recognized, too.
        """
        pattern, special = mask_pattern(self.pieces, self.special)
        ids = []
        follows_special = None
        for part in pattern.split(text):
            if part in special:
                ids.append(special[part])
            elif not self.marks_words:
                ids += self.encode([part])[0]
            elif part.strip():
                is_attached = follows_special and not part[0].isspace()
                ids += self.encode_part(part.strip(), is_attached)
            follows_special = part in special
        return ids

    def encode_with_offsets(self, texts: list[str]) -> Iterator[tuple[list[int], list[tuple]]]:
        """Yields the ids of each text, and where each token begins and ends in it, in characters."""
        with as_bad_input(self.path):
            for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False):
                (ids,) = ban([encoding.ids], self.special)
                yield ids, encoding.offsets

    def normalize(self, text: str) -> str:
        """Returns a text as the pieces are compared with it, for example lower-cased."""
        normalizer = self.tokenizer.normalizer
        return normalizer.normalize_str(text) if normalizer else text

    def encode_part(self, text: str, is_attached: bool | None) -> list[int]:
        """Returns the ids of a part of a text.

        is_attached: whether no space separates it from the text before; None at the start, where the tokenizer's own
            rules decide whether a word begins.
        """
        (ids,) = self.encode([text])
        if not self.mark or not ids or is_attached is None:
            return ids
        first = self.pieces[ids[0]]
        if not is_attached:
            if not first.startswith(self.mark):
                (ids,) = self.encode([f" {text}"])
            return ids
        if self.mark == "▁" and first == self.mark:
            return ids[1:]
        barrier = BARRIER[self.mark]
        ids, before = self.encode([barrier + text, barrier])
        return ids[len(before) :]

    def readable(self, number: int) -> str:
        """Returns a piece in readable form: bytes as characters, a space as "▁"."""
        return self.pieces[number]

    def save(self, directory: str | Path) -> None:
        """Writes settings.json, and vocab.txt, sentencepiece.model or tokenizer.json in their standard formats."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        settings = {"kind": self.kind, **self.write(directory)}
        (directory / "settings.json").write_text(json.dumps(settings) + "\n")
