"""Labels of words: parts of entities, in the schemes IO, IOB1, IOB2, IOE, IOBES and BILOU, or tags."""

import re

# B-PER, b_per, B, PER-B
PLACED = re.compile(r"([BIMELSUW])(?:[\W_](.+))?|(.+)[\W_]([BIMELSUW])", re.I)
SYNONYMS = str.maketrans("MLUW", "IESS")  # of the letters of BILOU, BMES and BMEWO


def parse(name: str) -> tuple[str, str]:
    """Returns the letter of a label for the place of a word in its entity, of B, I, E, S, and the kind of entity."""
    match = PLACED.fullmatch(name)
    if not match:
        return "", name
    letter = (match[1] or match[4]).upper().translate(SYNONYMS)
    return letter, match[2] or match[3] or ""


def outside(names: tuple[str, ...]) -> str:
    """Returns the label of words outside of entities: O or o, or the only one without a letter; O if there is none."""
    others = [name for name in names if not parse(name)[0]]
    if len(others) == 1:
        return others[0]
    if "o" in others and "O" not in others:
        return "o"
    return "O"


def are_tags(names: tuple[str, ...]) -> bool:
    """Returns whether labels are no entities: without O, or all of one letter, unless all have letters with B or I."""
    entities = {*names} - {outside(names)}
    letters = {parse(name)[0] for name in entities}
    if "" not in letters and not letters.isdisjoint("BI"):
        return False
    if len(entities) == len(names):
        return True
    return all(len(name) == 1 for name in entities)


def spellings(names: tuple[str, ...]) -> dict[str, str]:
    """Returns {label: O, or letter-kind as seqeval has it}.

    Without B and I, words in a row with the same label are an entity, or have the same tag: I-label.
    """
    parts = {name: parse(name) for name in names}
    letters = {letter for letter, _ in parts.values()}
    if letters.isdisjoint("BI") or are_tags(names):
        parts = {name: ("I", name) for name in names}
    result = {name: f"{letter or 'I'}-{kind}" for name, (letter, kind) in parts.items()}
    return result | {outside(names): "O"}
