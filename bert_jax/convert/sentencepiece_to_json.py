"""A SentencePiece model as a tokenizer.json that gives the same ids.

The `tokenizers` library knows both algorithms and applies the model's own table of characters; what it does differently
is set right here, by steps before and after that table.
"""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bert_jax.errors import BadInput
from bert_jax.tokenizers import sentencepiece_proto as types
from bert_jax.tokenizers.special_tokens import added_token

SPACE = "▁"
KINDS = (types.UNIGRAM, types.BPE)  # there are WORD and CHAR, too

# The library applies the table to whole grapheme clusters of up to five bytes, and then by the shortest rule that fits
# (a letter without its accent), where sentencepiece takes the longest that fits from any character on. A control
# character parts every cluster; the tables remove it again. What the longest rules do beside, which is to compose
# letters and accents, NFC does afterwards. Not at the start of a text: the library fails where something is put there.
PARTED = r"(?<=[\s\S])(?=[\p{M}\u200c\u200d\uff9e\uff9f\n])"
PARTER = "\x01"


def document(model: bytes, special: dict[str, int], appended: list[str]) -> dict:
    """tokenizer.json, parsed, of a serialized model and the pieces that were appended to it."""
    proto = types.Model.FromString(model)
    check(proto)
    pieces = [piece.piece for piece in proto.pieces]
    is_unigram = proto.trainer_spec.model_type == types.UNIGRAM
    library = Tokenizer(unigram(proto) if is_unigram else bpe(proto))
    library.normalizer = normalizers.Sequence([*steps(proto.normalizer_spec)])
    spaces = {
        "replacement": SPACE,
        "prepend_scheme": "first" if proto.normalizer_spec.add_dummy_prefix else "never",
        # A space only ever begins a piece, unless the model was trained otherwise: then words can be cut one by one.
        "split": not any(SPACE in piece[1:] for piece in pieces),
    }
    library.pre_tokenizer = pre_tokenizers.Metaspace(**spaces)
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(**spaces)])
    tokens = added_tokens(proto, [*pieces, *appended], special)
    return json.loads(library.to_str()) | {"added_tokens": tokens}


def check(proto) -> None:
    """Raises BadInput where a tokenizer.json cannot say what the model does."""
    trainer = proto.trainer_spec
    problem = ""
    if trainer.model_type not in KINDS:
        problem = "neither unigram nor bpe"
    elif trainer.treat_whitespace_as_suffix:
        problem = "words end with a space"
    elif any(piece.type == types.UNUSED for piece in proto.pieces):
        problem = "pieces marked as unused"
    if problem:
        raise BadInput(f"sentencepiece.model: {problem}; no tokenizer.json does the same")


def steps(normal):
    """The steps that make of a text what sentencepiece makes of it, up to the space before its first word.

    They see the parts of a text between special pieces one by one, so a space at the start of a part is left to
    Metaspace: after "[MASK]" it begins a word. At the start of a text that is right for all models that put a space
    there and leave out surplus ones, as is the rule.
    """
    if normal.precompiled_charsmap:
        yield normalizers.Replace(Regex(PARTED), PARTER)
        yield normalizers.Precompiled(normal.precompiled_charsmap)
        yield normalizers.Replace(PARTER, "")
        yield normalizers.NFC()
    if normal.remove_extra_whitespaces:
        yield normalizers.Replace(Regex(" {2,}"), " ")
        yield normalizers.Replace(Regex(r"[ ▁]+\z"), "")


def added_tokens(proto, pieces: list[str], special: dict[str, int]) -> list[dict]:
    """Special pieces, control symbols and, for BPE, the user's symbols, which are not merged with anything."""

    def of(kind: int) -> set[int]:
        return {number for number, piece in enumerate(proto.pieces) if piece.type == kind}

    special_ids = of(types.CONTROL) | set(special.values())
    ids = special_ids | set(range(len(proto.pieces), len(pieces)))
    if proto.trainer_spec.model_type == types.BPE:
        ids |= of(types.USER_DEFINED)
    return [added_token(pieces[number], number, number in special_ids) for number in sorted(ids)]


def unigram(proto) -> models.Unigram:
    """The pieces and their scores; the user's symbols get those that sentencepiece computes with."""
    highest = max(piece.score for piece in proto.pieces if piece.type == types.NORMAL)
    vocabulary = [
        (
            piece.piece,
            len(piece.piece.encode()) * highest - 0.1
            if piece.type == types.USER_DEFINED
            else piece.score,
        )
        for piece in proto.pieces
    ]
    return models.Unigram(vocabulary, unknown(proto), proto.trainer_spec.byte_fallback)


def bpe(proto) -> models.BPE:
    """The pieces, and as merges all pairs of pieces that make a piece, by its score."""
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == types.NORMAL}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=scores.get, reverse=True)
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    return models.BPE(
        {piece.piece: number for number, piece in enumerate(proto.pieces)},
        merges,
        unk_token=proto.pieces[unknown(proto)].piece,
        fuse_unk=True,
        byte_fallback=proto.trainer_spec.byte_fallback,
    )


def unknown(proto) -> int:
    return next(i for i, piece in enumerate(proto.pieces) if piece.type == types.UNKNOWN)
