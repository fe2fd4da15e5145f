"""The five special pieces: their names, and where a vocabulary that others made has them."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from bert_jax.errors import BadInput

# Their names, and their order in vocabularies that are trained here.
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
OTHER_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


class Vocabulary(NamedTuple):
    """What models and batches need to know of a tokenizer: its size and the special ids."""

    size: int
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def find(pieces: list[str], known: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    """({name: id} of all five, the pieces to append for those that `pieces` lacks).

    known: {name: id} that the file itself tells. Its unknown piece is the one that text is given, so that counts before
    any name; for the others the usual names count first.
    """
    ids = {piece: number for number, piece in enumerate(pieces)}
    special, appended = {}, []
    for name, usual in SPECIAL.items():
        named = ids.get(usual, ids.get(OTHER_NAMES[name]))
        told = known.get(name)
        number = told if named is None or (name == "unk" and told is not None) else named
        if number is None:
            number = len(pieces) + len(appended)
            appended.append(usual)
        special[name] = number
    return special, appended


def check(special: dict[str, int], size: int, place: object) -> None:
    """Raises BadInput unless these are the ids of five different pieces."""
    ids = [number for number in special.values() if type(number) is int and 0 <= number < size]
    if list(special) != list(SPECIAL) or len(set(ids)) < len(SPECIAL):
        raise BadInput(
            f"{place}: special pieces {special}, expected different ids under {size} of {list(SPECIAL)}"
        )


def added_token(content: str, number: int, special: bool = True) -> dict:
    """A piece that is not made of others, as tokenizer.json lists it."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


def ban(texts: Iterable[list[int]], special: dict[str, int]) -> list[list[int]]:
    """The ids of each text, with [UNK] for every other special piece that a library has read from it."""
    unk = special["unk"]
    banned = set(special.values()) - {unk}
    return [
        ids if banned.isdisjoint(ids) else [unk if i in banned else i for i in ids] for ids in texts
    ]


def literal(pieces: list[str], special: dict[str, int]) -> tuple[re.Pattern, dict[str, int]]:
    """What stands for [CLS], [SEP] and [MASK] in texts that may name them, and the ids it stands for.

    Both the usual spelling and the vocabulary's own.
    """
    names = ("cls", "sep", "mask")
    spelt = {pieces[special[name]]: special[name] for name in names}
    spelt |= {SPECIAL[name]: special[name] for name in names}
    return re.compile("(" + "|".join(map(re.escape, spelt)) + ")"), spelt
