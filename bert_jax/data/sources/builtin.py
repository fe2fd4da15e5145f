"""The data set `builtin:numbers`, parallel text that needs no download: `builtin:numbers[train]`, `[dev]` and `[test]`.

Its rows are distinct random numbers below a million in words, in the columns `en` and `de`.
"""

import re
from collections.abc import Iterator

import numpy as np

from bert_jax import prng
from bert_jax.data.sources.number_words import english, german
from bert_jax.errors import BadInput

PREFIX = "builtin:"
SOURCE = r"builtin:numbers(?:\[(train|dev|test)\])?"
BELOW = 1_000_000
SPLITS = {
    "train": range(20_000),
    "dev": range(20_000, 21_000),
    "test": range(21_000, 22_000),
}
KEY = np.array([prng.key(prng.PURPOSE["order"])])


def identify(source: str, field: str) -> dict:
    """Identifies a split by its name and number of rows. Raises BadInput if it or the column `field` is missing."""
    columns = table(source, [])
    if field not in columns:
        raise BadInput(f"{source}, field {field!r}: expected one of {', '.join(columns)}")
    return {"name": source, "examples": len(columns[field])}


def texts(source: str, field: str) -> Iterator[bytes]:
    """Yields the text of a column of each row."""
    yield from map(str.encode, table(source, [])[field])


def table(source: str, columns: list[str]) -> dict[str, list[str]]:
    """Returns all columns by their names, whatever `columns` are. Raises BadInput if there is no such split."""
    match = re.fullmatch(SOURCE, source)
    if not match:
        raise BadInput(f"{source}: expected builtin:numbers[SPLIT], of {', '.join(SPLITS)}")
    numbers = prng.shuffle(SPLITS[match[1] or "train"], BELOW, KEY).tolist()
    return {
        "en": [*map(english, numbers)],
        "de": [*map(german, numbers)],
    }
