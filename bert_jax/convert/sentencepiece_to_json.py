"""A SentencePiece model as a tokenizer.json that gives the same ids.

The `tokenizers` library knows both algorithms and applies the model's own table of characters; what it does differently
is set right here, by steps before and after that table.
"""

import base64

from bert_jax.errors import BadInput
from bert_jax.tokenizers import sentencepiece_proto

SPACE = "▁"
KINDS = {
    sentencepiece_proto.UNIGRAM: "Unigram",
    sentencepiece_proto.BPE: "BPE",
}  # as TrainerSpec numbers them; there are WORD and CHAR, too

# The library applies the table to whole grapheme clusters of up to five bytes, and then by the shortest rule that fits
# (a letter without its accent), where sentencepiece takes the longest that fits from any character on. A control
# character parts every cluster; the tables remove it again. What the longest rules do beside, which is to compose
# letters and accents, NFC does afterwards. Not at the start of a text: the library fails where something is put there.
PARTED = r"(?<=[\s\S])(?=[\p{M}\u200c\u200d\uff9e\uff9f\n])"
PARTER = "\x01"


def document(model: bytes, special: dict[str, int], appended: list[str]) -> dict:
    """tokenizer.json, parsed, of a serialized model and the pieces that were appended to it."""
    proto = sentencepiece_proto.Model.FromString(model)
    check(proto)
    pieces = [piece.piece for piece in proto.pieces]
    normal = proto.normalizer_spec
    # A space only ever begins a piece, unless the model was trained otherwise: then words can be cut one by one.
    split = not any(SPACE in piece[1:] for piece in pieces)
    scheme = "first" if normal.add_dummy_prefix else "never"
    metaspace = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": scheme,
        "split": split,
    }
    decoders = [{"type": "ByteFallback"}, metaspace]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(proto, [*pieces, *appended], special),
        "normalizer": {"type": "Sequence", "normalizers": list(normalizers(normal))},
        "pre_tokenizer": metaspace,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": unigram(proto)
        if proto.trainer_spec.model_type == sentencepiece_proto.UNIGRAM
        else bpe(proto),
    }


def check(proto) -> None:
    """Raises BadInput where a tokenizer.json cannot say what the model does."""
    trainer = proto.trainer_spec
    problem = ""
    if trainer.model_type not in KINDS:
        problem = "neither unigram nor bpe"
    elif trainer.treat_whitespace_as_suffix:
        problem = "words end with a space"
    elif any(piece.type == sentencepiece_proto.UNUSED for piece in proto.pieces):
        problem = "pieces marked as unused"
    if problem:
        raise BadInput(f"sentencepiece.model: {problem}; no tokenizer.json does the same")


def normalizers(normal):
    """The steps that make of a text what sentencepiece makes of it, up to the space before its first word.

    They see the parts of a text between special pieces one by one, so a space at the start of a part is left to
    Metaspace: after "[MASK]" it begins a word. At the start of a text that is right for all models that put a space
    there and leave out surplus ones, as is the rule.
    """
    if normal.precompiled_charsmap:
        table = base64.b64encode(normal.precompiled_charsmap).decode()
        yield replace({"Regex": PARTED}, PARTER)
        yield {"type": "Precompiled", "precompiled_charsmap": table}
        yield replace({"String": PARTER}, "")
        yield {"type": "NFC"}
    if normal.remove_extra_whitespaces:
        yield replace({"Regex": " {2,}"}, " ")
        yield replace({"Regex": r"[ ▁]+\z"}, "")


def replace(pattern: dict, content: str) -> dict:
    return {"type": "Replace", "pattern": pattern, "content": content}


def added_tokens(proto, pieces: list[str], special: dict[str, int]) -> list[dict]:
    """Special pieces, control symbols and, for BPE, the user's symbols, which are not merged with anything."""
    control = {
        i for i, piece in enumerate(proto.pieces) if piece.type == sentencepiece_proto.CONTROL
    }
    special_ids = control | set(special.values())
    ids = special_ids | set(range(len(proto.pieces), len(pieces)))
    if proto.trainer_spec.model_type == sentencepiece_proto.BPE:
        ids |= {
            i
            for i, piece in enumerate(proto.pieces)
            if piece.type == sentencepiece_proto.USER_DEFINED
        }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": pieces[number], **flags, "special": number in special_ids}
        for number in sorted(ids)
    ]


def unigram(proto) -> dict:
    """The pieces and their scores; the user's symbols get those that sentencepiece computes with."""
    highest = max(piece.score for piece in proto.pieces if piece.type == sentencepiece_proto.NORMAL)
    scores = [
        len(piece.piece.encode()) * highest - 0.1
        if piece.type == sentencepiece_proto.USER_DEFINED
        else piece.score
        for piece in proto.pieces
    ]
    return {
        "type": "Unigram",
        "unk_id": unknown(proto),
        "vocab": [[piece.piece, score] for piece, score in zip(proto.pieces, scores, strict=True)],
        "byte_fallback": proto.trainer_spec.byte_fallback,
    }


def bpe(proto) -> dict:
    """The pieces, and as merges all pairs of pieces that make a piece, by its score."""
    numbers = {piece.piece: number for number, piece in enumerate(proto.pieces)}
    scores = {
        piece.piece: piece.score
        for piece in proto.pieces
        if piece.type == sentencepiece_proto.NORMAL
    }
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=scores.get, reverse=True)
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": proto.pieces[unknown(proto)].piece,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": proto.trainer_spec.byte_fallback,
        "ignore_merges": False,
        "vocab": numbers,
        "merges": merges,
    }


def unknown(proto) -> int:
    return next(
        i for i, piece in enumerate(proto.pieces) if piece.type == sentencepiece_proto.UNKNOWN
    )
