"""Special tokens: their names, their ids in an external vocabulary, the frame of a text, and tasks that need them."""

import re
from collections import namedtuple
from collections.abc import Iterable
from typing import NamedTuple

from bert_jax.errors import BadInput
from bert_jax.registry import find_part

# Their names, in the order of the vocabularies that this project trains. `cls` begins a text, and `sep` ends it.
SPECIAL = {
    "pad": "[PAD]",
    "unk": "[UNK]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}
OTHER_NAMES = {
    "pad": "<pad>",
    "unk": "<unk>",
    "cls": "<s> <bos>",
    "sep": "</s> <eos>",
    "mask": "<mask>",
}
# With `end`, which ends the rows of fine-tuned causal models, and which no vocabulary has before these; and with `bos`,
# which begins the texts of a causal model of another program, if `sep` does not, and which may also be read from text.
ALL = SPECIAL | {"end": "[END]", "bos": "[BOS]"}
# In the vocabularies of GPT-2 and its relatives, one piece begins a text, ends it, and is unknown.
TEXT_END = "<|endoftext|>"
BERT_FRAME = "cls | sep | sep"  # see `parse_frame`


class Vocabulary(namedtuple("Vocabulary", ("size", *ALL), defaults=(None,) * len(ALL))):
    """The properties of a tokenizer that models and batches use: its size, and the special ids that it has."""

    @property
    def begin(self) -> int | None:
        """The id in front of a text of a causal model."""
        return self.sep if self.bos is None else self.bos


def find_ids(
    pieces: list[str], known: dict[str, int], names: dict[str, str], add_special: bool
) -> tuple[dict[str, int], list[str]]:
    """Returns {name: id} of the special tokens that a vocabulary has, and the pieces to append.

    With `add_special`, these are the special tokens that `pieces` lacks; otherwise there are none.

    known: {name: id} from the vocabulary file. Its unknown token takes precedence over the usual name, since the
        library emits that id; for the others, the usual names take precedence.
    names: {name: spelling} from the settings of a model; these tokens have no other spelling.
    """
    ids = {piece: number for number, piece in enumerate(pieces)}
    special = dict.fromkeys(SPECIAL)
    appended = []
    for name in filter(SPECIAL.get, names | SPECIAL):  # those with a name are appended first
        spellings = [SPECIAL[name], *OTHER_NAMES[name].split()]
        if name in names:
            spellings = [names[name]]
        number = next((ids[spelling] for spelling in spellings if spelling in ids), None)
        if number is None or name == "unk":
            number = known.get(name, number)
        if number is None and name in ("unk", "cls", "sep") and name not in names:
            number = ids.get(TEXT_END)
        if number is None and add_special:
            number = len(pieces) + len(appended)
            ids[spellings[0]] = number
            appended.append(spellings[0])
        special[name] = number
    return {name: number for name, number in special.items() if number is not None}, appended


class Frame(NamedTuple):
    """The special tokens around the texts of a sequence, as names or as ids.

    A token is of the segment of the text in front of it, those at the beginning of that of the first text.
    """

    begin: tuple = ()
    between: tuple = ()  # behind each text but the last one
    end: tuple = ()
    last_segment: int | None = None  # of the last token of `end`, if it is no text's

    def size(self, texts: int = 1) -> int:
        """Returns the number of special tokens around so many texts."""
        return len(self.begin) + (texts - 1) * len(self.between) + len(self.end)

    def wrap(self, *texts: Iterable[int]) -> tuple[list[int], list[int]]:
        """Returns the ids of a sequence of at least one text, and the segment of each: 0, 1, ... of each text."""
        ids = [*self.begin]
        segments = [0] * len(ids)
        last = len(texts) - 1
        for index, text in enumerate(texts):
            ids += [*text, *(self.end if index == last else self.between)]
            segments += [index] * (len(ids) - len(segments))
        if self.last_segment is not None:
            segments[-1] = self.last_segment
        return ids, segments

    def ids(self, special: dict[str, int | None]) -> "Frame":
        """Returns the frame of names with their ids, without those that a vocabulary lacks; [SEP] in place of [END].

        special: {name: id}.
        """
        known = {name: number for name, number in special.items() if number is not None}
        if "sep" in known:
            known.setdefault("end", known["sep"])
        parts = [tuple(known[name] for name in part if name in known) for part in self[:3]]
        return Frame(*parts, self.last_segment)


def parse_frame(text: str) -> Frame:
    """Returns the frame of names that a text describes, such as "cls | sep | sep"; "cls:2" at the end is of segment
    2."""
    text, _, segment = text.partition(":")
    parts = [tuple(part.split()) for part in text.split("|")]
    return Frame(*parts, int(segment) if segment else None)


def model_frame(model: str) -> Frame:
    """Returns the frame of the texts of config.model.name, as names: the FRAME of its file, or that of BERT."""
    return parse_frame(find_part("model", model).FRAME or BERT_FRAME)


def target_frame(model: str) -> Frame:
    """Returns the frame of the targets of config.model.name, as names: the TARGET_FRAME of its file, or that of
    BERT."""
    return parse_frame(find_part("model", model).TARGET_FRAME or BERT_FRAME)


def frame_of(config) -> Frame:
    """Returns the frame of the texts of a model, as names. A causal one ends with [END], so that the token whose vector
    it reads is not the [SEP] between texts."""
    frame = model_frame(config.model.name)
    return frame._replace(end=("end",)) if config.objective.get("causal") else frame


def check_task(config, tokenizer, path: object) -> None:
    """Raises BadInput if a tokenizer lacks special tokens that the task of a config needs, NEEDS of its file, or
    if masks need to know where words start, and its pieces do not mark it.

    path: the name of the tokenizer in the error.
    """
    name = config.task.name
    needs = find_part("task", name).NEEDS.split()
    missing = ", ".join(SPECIAL[need] for need in needs if need not in tokenizer.special)
    if missing:
        raise BadInput(
            f"{path}: has no {missing}, which config.task.name={name!r} needs;"
            f" config.tokenizer.add_special=True appends what a tokenizer lacks"
        )
    masking = config.task.get("masking", "token")
    if masking != "token" and not tokenizer.marks_words:
        raise BadInput(
            f"config.task.masking={masking!r}: {path}: its pieces do not mark where words start (by ##, ▁ or Ġ)"
        )


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
    """Replaces special tokens, bos apart, in the ids of each text by [UNK]; some libraries read them from text.

    Raises ValueError if there is no [UNK] for them.
    """
    unk = special.get("unk")
    banned = {number for name, number in special.items() if name != "bos"} - {unk}
    allowed = []
    for ids in texts:
        if not banned.isdisjoint(ids):
            if unk is None:
                raise ValueError("it reads special tokens from text, and has no [UNK] for them")
            ids = [unk if number in banned else number for number in ids]
        allowed.append(ids)
    return allowed


def mask_pattern(pieces: list[str], special: dict[str, int]) -> tuple[re.Pattern, dict[str, int]]:
    """Returns a pattern for [CLS], [SEP] and [MASK] in a text, and {spelling: id}.

    It matches the usual spellings and those of the vocabulary, of the tokens that the vocabulary has.
    """
    names = [name for name in ("cls", "sep", "mask") if name in special]
    spellings = {pieces[special[name]]: special[name] for name in names}
    spellings |= {SPECIAL[name]: special[name] for name in names}
    alternatives = "|".join(map(re.escape, spellings)) or "(?!)"  # which matches nothing
    return re.compile(f"({alternatives})"), spellings
