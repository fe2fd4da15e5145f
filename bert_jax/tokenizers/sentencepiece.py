"""SentencePiece, unigram or BPE: a .model, kept byte for byte, and the special pieces it lacks.

Ids equal those of the `sentencepiece` library, which normalizes by the rules in the model.
"""

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import sentencepiece

from bert_jax.errors import BadInput
from bert_jax.tokenizers import sentencepiece_proto
from bert_jax.tokenizers.base import Tokenizer
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


class SentencePiece(Tokenizer):
    """A serialized model; `special` ids from its size on are those of the `appended` pieces."""

    kind, file, mark = KIND, FILE, "▁"

    def __init__(self, model: bytes, special: dict[str, int], appended: list[str]):
        self.model, self.appended, self.processor = model, list(appended), open_processor(model)
        super().__init__([*model_pieces(self.processor), *appended], special)

    @property
    def word_starts(self) -> np.ndarray:
        starts = np.array([piece.startswith(self.mark) for piece in self.pieces])
        starts[list(self.special.values())] = True
        return starts

    @property
    def identity(self) -> list:
        return [hashlib.sha256(self.model).hexdigest(), self.special, self.appended]

    def encode(self, texts: list[str]) -> list[list[int]]:
        # The library's own threads would multiply with the processes of prepare. User-defined special pieces are read
        # from a text, control symbols are not.
        return ban(self.processor.encode(texts, num_threads=1), self.special)

    def join(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def write(self, directory: Path) -> dict:
        (directory / FILE).write_bytes(self.model)
        return {"special": self.special, "appended": self.appended}


def model_pieces(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    return [processor.id_to_piece(number) for number in range(processor.piece_size())]


def open_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)  # the constructor takes b"" for no model at all
    return processor


def read(directory: Path, settings: dict) -> SentencePiece:
    made = SentencePiece((directory / FILE).read_bytes(), settings["special"], settings["appended"])
    check(made.special, made.size, directory / FILE)
    return made


def given(path: Path) -> SentencePiece:
    """A .model of others; the special pieces that it lacks get the ids after its last."""
    model = path.read_bytes()
    processor = open_processor(model)
    known = {name: getattr(processor, f"{role}_id")() for role, name in ROLES.items()}
    known = {name: number for name, number in known.items() if number >= 0}  # -1: it has none
    made = SentencePiece(model, *find(model_pieces(processor), known))
    check(made.special, made.size, path)
    return made


def train(kind: str, texts: Iterable[str], size: int, lowercase: bool) -> SentencePiece:
    """A model of `size` pieces, kind unigram or bpe, special ones first; equal texts give equal ones.

    lowercase folds case and keeps accents. Texts are read once and held by the library.
    """
    file = io.BytesIO()
    names = {f"{role}_piece": SPECIAL[name] for role, name in ROLES.items()}
    ids = {f"{role}_id": list(SPECIAL).index(name) for role, name in ROLES.items()}
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
