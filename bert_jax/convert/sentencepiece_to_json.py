"""Converts a SentencePiece model to a tokenizer.json that gives the same ids.

The `tokenizers` library implements both algorithms and applies the model's own normalization table. Where it differs
from sentencepiece, normalizer steps before and after that table compensate.
"""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bert_jax.errors import BadInput
from bert_jax.tokenizers import sentencepiece_proto as types
from bert_jax.tokenizers.sentencepiece import SentencePiece
from bert_jax.tokenizers.special_tokens import added_token

SPACE = "▁"
KINDS = (types.UNIGRAM, types.BPE)  # WORD and CHAR are not supported

# The library applies the table to whole grapheme clusters of up to five bytes, and takes the shortest matching rule (a
# letter without its accent). sentencepiece takes the longest rule that matches at any character. So a control character
# splits every cluster, and is removed after the table. The longest rules also compose letters and accents; NFC does
# that at the end. Nothing is inserted at the start of a text, because the library fails there.
CLUSTER_BREAK = r"(?<=[\s\S])(?=[\p{M}\u200c\u200d\uff9e\uff9f\n])"
SEPARATOR = "\x01"


def document(tokenizer: SentencePiece) -> dict:
    """Returns tokenizer.json, parsed, for a model and the pieces that were appended to it."""
    proto = types.Model.FromString(tokenizer.model)
    check(proto)
    make = unigram if proto.trainer_spec.model_type == types.UNIGRAM else bpe
    library = Tokenizer(make(proto))
    library.normalizer = normalizers.Sequence([*normalizer_steps(proto.normalizer_spec)])
    spaces = {
        "replacement": SPACE,
        "prepend_scheme": "first" if proto.normalizer_spec.add_dummy_prefix else "never",
        # Words can be tokenized one by one if a space occurs at the start of a piece only, as in most models.
        "split": not any(SPACE in piece.piece[1:] for piece in proto.pieces),
    }
    library.pre_tokenizer = pre_tokenizers.Metaspace(**spaces)
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(**spaces)])
    tokens = added_tokens(proto, tokenizer.pieces, tokenizer.special)
    return json.loads(library.to_str()) | {"added_tokens": tokens}


def check(proto) -> None:
    """Raises BadInput for a model that a tokenizer.json cannot express."""
    trainer = proto.trainer_spec
    problems = {
        "model type is neither unigram nor bpe": trainer.model_type not in KINDS,
        "spaces are suffixes of words": trainer.treat_whitespace_as_suffix,
        "has pieces marked as unused": ids_of(proto, types.UNUSED),
    }
    for problem, is_present in problems.items():
        if is_present:
            raise BadInput(f"sentencepiece.model: {problem}, which tokenizer.json cannot express")


def normalizer_steps(spec):
    """Yields normalizers that together normalize a text as sentencepiece does, except for a leading space.

    The library normalizes the parts of a text between special pieces separately. A leading space of a part is left to
    Metaspace, because after "[MASK]" it begins a word. At the start of a text this is correct for models that add a
    space there and remove extra spaces, which is the default.
    """
    if spec.precompiled_charsmap:
        yield normalizers.Replace(Regex(CLUSTER_BREAK), SEPARATOR)
        yield normalizers.Precompiled(spec.precompiled_charsmap)
        yield normalizers.Replace(SEPARATOR, "")
        yield normalizers.NFC()
    if spec.remove_extra_whitespaces:
        yield normalizers.Replace(Regex(" {2,}"), " ")
        yield normalizers.Replace(Regex(r"[ ▁]+\z"), "")


def added_tokens(proto, pieces: list[str], special: dict[str, int]) -> list[dict]:
    """Returns special pieces, control symbols and, for BPE, user-defined symbols, which no merge may join."""
    special_ids = {*ids_of(proto, types.CONTROL), *special.values()}
    ids = special_ids.union(range(len(proto.pieces), len(pieces)))
    if proto.trainer_spec.model_type == types.BPE:
        ids.update(ids_of(proto, types.USER_DEFINED))
    return [added_token(pieces[number], number, number in special_ids) for number in sorted(ids)]


def unigram(proto) -> models.Unigram:
    """Returns a unigram model. User-defined symbols get the scores that sentencepiece uses for them."""
    highest = max(piece.score for piece in proto.pieces if piece.type == types.NORMAL)
    vocabulary = []
    for piece in proto.pieces:
        score = piece.score
        if piece.type == types.USER_DEFINED:
            score = len(piece.piece.encode()) * highest - 0.1
        vocabulary.append((piece.piece, score))
    unknown = ids_of(proto, types.UNKNOWN)[0]
    return models.Unigram(vocabulary, unknown, proto.trainer_spec.byte_fallback)


def bpe(proto) -> models.BPE:
    """Returns a BPE model. Its merges are all pairs of pieces that form a piece, sorted by the score of that piece."""
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == types.NORMAL}
    merges = []
    for piece in sorted(scores, key=scores.get, reverse=True):
        for cut in range(1, len(piece)):
            pair = piece[:cut], piece[cut:]
            if scores.keys() >= {*pair}:
                merges.append(pair)
    return models.BPE(
        {piece.piece: number for number, piece in enumerate(proto.pieces)},
        merges,
        unk_token=proto.pieces[ids_of(proto, types.UNKNOWN)[0]].piece,
        fuse_unk=True,
        byte_fallback=proto.trainer_spec.byte_fallback,
    )


def ids_of(proto, kind: int) -> list[int]:
    """Returns the ids of all pieces of a type."""
    return [number for number, piece in enumerate(proto.pieces) if piece.type == kind]
