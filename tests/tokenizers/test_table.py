"""Remembered units give what the library gives, in bounded memory."""

import random
import re

from kits.texts import nasty

from bert_jax.tokenizers.table import Units


def encode(texts: list[str]) -> list[list[int]]:
    """Code points of what is not white space."""
    return [[ord(c) for c in text if not c.isspace()] for text in texts]


def test_memory_is_bounded_and_nothing_needed_is_forgotten():
    table = Units(re.compile(r"[^ \n]+|\n"), encode, limit=50, characters=300)
    draw = random.Random(2)
    for _ in range(100):
        texts = [nasty(draw).replace("\n", " ") for _ in range(10)]
        ids, ends = table.encode(texts)
        starts = [0, *ends]
        parts = [ids[a:b].tolist() for a, b in zip(starts, ends, strict=False)]
        assert parts == encode(texts)
        assert len(table.numbers) < 1000 and table.characters < 5000
