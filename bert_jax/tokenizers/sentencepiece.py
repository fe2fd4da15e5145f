"""SentencePiece, unigram or BPE: a .model file, kept byte for byte, and the special tokens it lacks.

Ids equal those of the `sentencepiece` library, which normalizes text by the rules in the model.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import sentencepiece

from bert_jax.errors import BadInput, one_line
from bert_jax.tokenizers import sentencepiece_proto
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.corpus_encoder import encode_documents, flatten
from bert_jax.tokenizers.sample import lines
from bert_jax.tokenizers.special_tokens import SPECIAL, ban, find_ids
from bert_jax.tokenizers.training import Training

KIND = "sentencepiece"
FILE = "sentencepiece.model"

# Unigram training splits its sums among threads, so their rounding depends on this number. It is
# fixed to get the same vocabulary on every machine.
THREADS = 8

# The library's names of the special tokens -> ours.
ROLES = {
    "pad": "pad",
    "unk": "unk",
    "bos": "cls",
    "eos": "sep",
}

# Scores of a unigram model are rounded to multiples of 1/256 nat. The library sums scores over a whole line in float32.
# With the trainer's own scores, the rounding of that sum decides ties such as "ii i" or "i ii" for "iii", differently
# at different positions of a line and in different programs. Multiples of 1/256 are summed exactly up to 65,536.
GRID = 256


class SentencePiece(Tokenizer):
    """The tokenizer of a serialized model.

    appended: special tokens that the model lacks; they get the next ids.
    """

    kind = KIND
    file = FILE
    mark = "▁"

    def __init__(self, model: bytes, special: dict[str, int], appended: list[str], path=FILE):
        self.model = model
        self.appended = appended
        self.processor = open_processor(model)
        super().__init__([*model_pieces(self.processor), *appended], special, path)

    @property
    def identity(self) -> list:
        return [hashlib.sha256(self.model).hexdigest(), self.special, self.appended]

    def encode(self, texts: list[str]) -> list[list[int]]:
        # One thread, since `prepare` runs a process per core. The library reads user-defined symbols from a text, which
        # may include special tokens; control symbols it does not.
        return ban(self.processor.encode(texts, num_threads=1), self.special)

    def decode_pieces(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def encode_with_offsets(self, texts: list[str]) -> Iterator[tuple[list[int], list[tuple]]]:
        for encoding in self.processor.encode(texts, return_type="offset_mapping", num_threads=1):
            (ids,) = ban([encoding["ids"]], self.special)
            yield ids, encoding["offsets"]

    def normalize(self, text: str) -> str:
        return self.processor.normalize(text)

    def append(self, pieces: list[str], special: dict[str, int]) -> "SentencePiece":
        return SentencePiece(self.model, special, [*self.appended, *pieces], self.path)

    def corpus_encoder(self) -> Callable:
        model = sentencepiece_proto.Model.FromString(self.model)
        has_phrases = any(self.mark in piece.piece[1:] for piece in model.pieces)
        is_exact = all(piece.score * GRID % 1 == 0 for piece in model.pieces)
        if has_phrases or not is_exact or not model.normalizer_spec.add_dummy_prefix:
            return partial(encode_documents, self.encode_with_offsets)
        # No piece spans words, and sums of scores are exact: the library encodes words independently.
        return lambda documents: flatten(self.encode([*chain(*documents)]))

    def write(self, directory: Path) -> dict:
        (directory / FILE).write_bytes(self.model)
        return {"special": self.special, "appended": self.appended}


def model_pieces(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    """Returns the pieces of the model by id."""
    return [processor.id_to_piece(index) for index in range(processor.piece_size())]


def open_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Opens a serialized model with the library, which raises RuntimeError if it is invalid."""
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)  # the constructor would accept b"" as no model
    return processor


def read(directory: Path, settings: dict) -> SentencePiece:
    """Reads a tokenizer that `save` wrote."""
    path = directory / FILE
    return SentencePiece(path.read_bytes(), settings["special"], settings["appended"], path)


def from_file(path: Path, add_special: bool) -> SentencePiece:
    """Reads an external .model file. add_special: special tokens that it lacks get the ids after its last."""
    model = path.read_bytes()
    processor = open_processor(model)
    known = {}
    for role, name in ROLES.items():
        number = getattr(processor, f"{role}_id")()
        if number >= 0:  # -1 if undefined
            known[name] = number
    special, appended = find_ids(model_pieces(processor), known, {}, add_special)
    return SentencePiece(model, special, appended, path)


def train(
    kind: str, texts: Iterable[str], size: int, lowercase: bool, training: Training
) -> SentencePiece:
    """Trains a model of `size` pieces, special tokens first. Deterministic.

    Reads the texts once; the library holds them in memory.

    kind: unigram or bpe.
    lowercase: folds case, and keeps accents.
    training: its nfkc is the library's nmt_nfkc; identity has no `lowercase`.
    """
    rule = "nmt_nfkc_cf" if lowercase else "nmt_nfkc"
    if training.normalization == "identity":
        rule = "identity"
    file = io.BytesIO()
    options = {}
    for role, name in ROLES.items():
        options[f"{role}_piece"] = SPECIAL[name]
        options[f"{role}_id"] = training.special_ids[name]
    for key in ("split_digits", "byte_fallback"):
        if getattr(training, key):  # a model has the options that it was given
            options[key] = True
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(texts),
            model_writer=file,
            model_type=kind,
            vocab_size=size,
            normalization_rule_name=rule,
            character_coverage=training.coverage,
            control_symbols=[SPECIAL["mask"]],  # takes the next free id
            num_threads=THREADS,
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        # The library's remedies are options of its own.
        reason = one_line(error, 1000)
        reason = re.sub(r".*required_chars.* vs (\d+).*", r"expected at least \1", reason)
        reason = re.sub(r".*too high.*<= (\d+).*", r"expected at most \1", reason)
        raise BadInput(f"config.tokenizer.size={size}: {reason}") from None
    model = file.getvalue()
    if kind == "unigram":
        model = round_scores(model)
    return SentencePiece(model, training.special_ids, [])


def round_scores(model: bytes) -> bytes:
    """Rounds the scores of a serialized model to multiples of 1 / GRID."""
    proto = sentencepiece_proto.Pieces.FromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * GRID) / GRID
    return proto.SerializeToString(deterministic=True)
