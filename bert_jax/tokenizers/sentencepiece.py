"""SentencePiece, unigram or BPE: a .model, kept byte for byte, and the special pieces it lacks.

Ids equal those of the `sentencepiece` library, which normalizes by the rules in the model.
"""

import functools
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import sentencepiece

from bert_jax.errors import BadInput
from bert_jax.storage import regular_files
from bert_jax.tokenizers import sentencepiece_proto
from bert_jax.tokenizers.encode_cache import Table
from bert_jax.tokenizers.sample import COVERAGE, lines
from bert_jax.tokenizers.special_tokens import SPECIAL, ban, check, find

KIND = "sentencepiece"
FILE = "sentencepiece.model"

# The sums of unigram training are parted among threads: their rounding depends on this number, so
# it is the same on every machine.
THREADS = 8

# What the library calls our special pieces.
ROLES = {"pad": "pad", "unk": "unk", "bos": "cls", "eos": "sep"}

# Parts of a nat that the scores of a unigram model are rounded to. The library adds them up over a whole line in
# float32: with the trainer's own scores it is the rounding of that sum that says whether "iii" is "ii i" or "i ii",
# another way at another place of a line and in other programs. Multiples of 1/256 add up exactly as far as 65,536.
GRID = 256


class SentencePiece:
    """A serialized model; `special` ids from its size on are those of the `appended` pieces."""

    kind = KIND
    mark = "▁"

    def __init__(self, model: bytes, special: dict[str, int], appended: list[str]):
        self.model, self.special, self.appended = model, special, list(appended)
        self.processor = open_processor(model)
        self.pieces = [*model_pieces(self.processor), *appended]
        # Control symbols are never read from a text, user-defined ones are.
        inside = {*special.values()} & {*range(self.processor.piece_size())} - {special["unk"]}
        self.readable_from_text = not all(map(self.processor.is_control, inside))

    @property
    def word_starts(self) -> np.ndarray:
        starts = np.array([piece.startswith(self.mark) for piece in self.pieces])
        starts[list(self.special.values())] = True
        return starts

    @property
    def identity(self) -> list:
        return [hashlib.sha256(self.model).hexdigest(), self.special, self.appended]

    def encode(self, texts: list[str]) -> list[list[int]]:
        # The library's own threads would multiply with the processes of prepare.
        ids = self.processor.encode(texts, num_threads=1)
        return ban(ids, self.special) if self.readable_from_text else ids

    def encode_inside(self, text: str) -> list[int]:
        """The ids of a text that goes on right after a special piece: no word begins with it."""
        return ban([self.inside.encode(text)], self.special)[0]

    @functools.cached_property
    def inside(self) -> sentencepiece.SentencePieceProcessor:
        """The model without the space that it puts before a text."""
        proto = sentencepiece_proto.Model.FromString(self.model)
        proto.normalizer_spec.add_dummy_prefix = False
        return open_processor(proto.SerializeToString())

    def decode(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def readable(self, number: int) -> str:
        return self.pieces[number]

    def table(self) -> Table:
        return Table(self.encode)

    def write(self, directory: Path) -> dict:
        (directory / FILE).write_bytes(self.model)
        return {"special": self.special, "appended": self.appended}


def model_pieces(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    return [processor.id_to_piece(number) for number in range(processor.piece_size())]


def open_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)  # the constructor takes b"" for no model at all
    return processor


def open_model(path: Path) -> tuple[bytes, sentencepiece.SentencePieceProcessor]:
    try:
        model = regular_files.content(path)
        processor = open_processor(model)
        model_pieces(processor)  # one that is not UTF-8 is found here
        return model, processor
    except OSError as error:
        raise BadInput(f"{path}: cannot read the vocabulary ({error.strerror})") from None
    except (RuntimeError, UnicodeDecodeError):
        raise BadInput(f"{path}: not a SentencePiece model") from None


def read(directory: Path, settings: dict) -> SentencePiece:
    path = directory / FILE
    model, processor = open_model(path)
    special, appended = settings["special"], settings["appended"]
    check(special, processor.piece_size() + len(appended), path)
    return SentencePiece(model, special, appended)


def given(path: Path) -> SentencePiece:
    """A .model of others; the special pieces that it lacks get the ids after its last."""
    model, processor = open_model(path)
    pieces = model_pieces(processor)
    told = {"pad": "pad_id", "unk": "unk_id", "cls": "bos_id", "sep": "eos_id"}
    known = {name: getattr(processor, method)() for name, method in told.items()}
    known = {name: number for name, number in known.items() if number >= 0}  # -1: it has none
    special, appended = find(pieces, known)
    check(special, len(pieces) + len(appended), path)
    return SentencePiece(model, special, appended)


def train(kind: str, texts: Iterable[str], size: int, lowercase: bool) -> SentencePiece:
    """A model of `size` pieces, kind unigram or bpe, special ones first; equal texts give equal ones.

    lowercase folds case and keeps accents. Texts are read once and held by the library.
    """
    file = io.BytesIO()
    names = {f"{role}_piece": SPECIAL[name] for role, name in ROLES.items()}
    ids = {f"{role}_id": list(SPECIAL).index(name) for role, name in ROLES.items()}
    if size <= len(SPECIAL):
        raise BadInput(f"config.tokenizer.size={size}: too few, special pieces take {len(SPECIAL)}")
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(texts),
            model_writer=file,
            model_type=kind,
            vocab_size=size,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            character_coverage=COVERAGE,
            control_symbols=[SPECIAL["mask"]],  # takes the next free id
            num_threads=THREADS,
            minloglevel=2,
            **names,
            **ids,
        )
    except RuntimeError as error:
        # The library names the condition that failed, and what to do about it.
        reason = str(error).rpartition("] ")[2] or str(error)
        raise BadInput(f"config.tokenizer.size={size}: {reason.strip()}") from None
    model = rounded(file.getvalue()) if kind == "unigram" else file.getvalue()
    special = {name: number for number, name in enumerate(SPECIAL)}
    return SentencePiece(model, special, [])


def rounded(model: bytes) -> bytes:
    """A serialized model with its scores on the grid."""
    proto = sentencepiece_proto.Pieces.FromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * GRID) / GRID
    return proto.SerializeToString(deterministic=True)
