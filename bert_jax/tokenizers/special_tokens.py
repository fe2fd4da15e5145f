"""The five special tokens: their names, and their ids in an external vocabulary."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from bert_jax.errors import BadInput

# Their names, in the order of the vocabularies that this project trains.
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
IDS = {name: number for number, name in enumerate(SPECIAL)}  # in these vocabularies
OTHER_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


class Vocabulary(NamedTuple):
    """The properties of a tokenizer that models and batches use: its size and special ids."""

    size: int
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def find_ids(
    pieces: list[str], known: dict[str, int], names: dict[str, str]
) -> tuple[dict[str, int], list[str]]:
    """Returns {name: id} of all five special tokens, and the pieces to append for those that `pieces` lacks.

    known: {name: id} from the vocabulary file. Its unknown token takes precedence over the usual name, since the
        library emits that id; for the others, the usual names take precedence.
    names: {name: spelling} from the settings of a model, which take precedence over the usual ones.
    """
    ids = {piece: number for number, piece in enumerate(pieces)}
    special = {}
    appended = []
    for name, usual in SPECIAL.items():
        spellings = names.get(name), usual, OTHER_NAMES[name]
        number = next((ids[spelling] for spelling in spellings if spelling in ids), None)
        if number is None or name == "unk":
            number = known.get(name, number)
        if number is None:
            number = len(pieces) + len(appended)
            appended.append(usual)
        special[name] = number
    return special, appended


def check_ids(special: dict[str, int], size: int, path: object) -> None:
    """Raises BadInput unless `special` has valid, distinct ids for all five special tokens."""
    ids = [number for number in special.values() if type(number) is int and 0 <= number < size]
    if list(special) != list(SPECIAL) or len(set(ids)) < len(SPECIAL):
        expected = f"distinct ids below {size} for {list(SPECIAL)}"
        raise BadInput(f"{path}: special tokens {special}: expected {expected}")


def added_token(content: str, number: int, special: bool = True) -> dict:
    """Returns an entry of `added_tokens` in tokenizer.json."""
    return {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def ban(texts: Iterable[list[int]], special: dict[str, int]) -> list[list[int]]:
    """Replaces special tokens in the ids of each text by [UNK]; some libraries read them from text."""
    unk = special["unk"]
    banned = set(special.values()) - {unk}
    allowed = []
    for ids in texts:
        if not banned.isdisjoint(ids):
            ids = [unk if number in banned else number for number in ids]
        allowed.append(ids)
    return allowed


def mask_pattern(pieces: list[str], special: dict[str, int]) -> tuple[re.Pattern, dict[str, int]]:
    """Returns a pattern for [CLS], [SEP] and [MASK] in a text, and {spelling: id}.

    It matches the usual spellings and those of the vocabulary.
    """
    names = ("cls", "sep", "mask")
    spellings = {pieces[special[name]]: special[name] for name in names}
    spellings |= {SPECIAL[name]: special[name] for name in names}
    return re.compile(f"({'|'.join(map(re.escape, spellings))})"), spellings
