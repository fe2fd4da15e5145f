"""Strings of digits to copy, to reverse, and to add, as pairs of a source and a target.

The files of data/ say which ones a split has, as {operation: [{"digits": [least, most], "pairs": number}]}:

    copy      c 3 1 4        3 1 4
    reverse   r 3 1 4        4 1 3
    add       a 3 1 + 4 9    7 0 1     the lowest digit first: 13 + 94 = 107

`digits` is the length of the string, or of both numbers together.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.tasks import translation
from bert_jax.tasks.supervised.examples import Example

DATA = Path(__file__).parent / "data"
DEFAULTS = translation.DEFAULTS | {
    "data": str(DATA),
    "train": "train.json",
    "dev": ("dev.json", "copy.json", "reverse.json", "add.json"),
    "metrics": (),  # the score is that of this task
}
FILLED = translation.FILLED
check = translation.check
fill = translation.fill


def load(config, path) -> list[Example]:
    """Returns the pairs that a file of data/ names, always the same."""
    examples = []
    for operation, parts in json.loads(Path(path).read_text()).items():
        if operation not in OPERATIONS:
            raise BadInput(f"{path}: {operation}: expected one of {', '.join(OPERATIONS)}")
        for part in parts:
            least, most = part["digits"]
            key = prng.key(*map(ord, f"{Path(path).stem} {operation}"), least, most)
            draw = np.random.Generator(np.random.Philox(key))
            for size in draw.integers(least, most + 1, part["pairs"]):
                texts = OPERATIONS[operation](draw.integers(0, 10, size).tolist())
                location = f"{path}: pair {len(examples) + 1}"
                examples.append(Example(location, [*map(join, texts)], None))
    return examples


def join(symbols: list) -> str:
    return " ".join(map(str, symbols))


def copy(digits: list[int]) -> tuple:
    return ["c", *digits], digits


def reverse(digits: list[int]) -> tuple:
    return ["r", *digits], digits[::-1]


def add(digits: list[int]) -> tuple:
    size = len(digits) // 2
    numbers = digits[:size], digits[size:]
    total = sum(value(number) for number in numbers)
    return ["a", *numbers[0], "+", *numbers[1]], [*str(total)[::-1]]


def value(digits: list[int]) -> int:
    """Returns the number that has these digits, the lowest first."""
    return int("".join(map(str, digits[::-1])))


OPERATIONS = {"copy": copy, "reverse": reverse, "add": add}


def score(predicted: list[str], targets: list[str]) -> dict[str, float]:
    """Returns the share of the strings that are right, and that of the symbols of the targets, each at its place."""
    right = 0
    total = 0
    for guess, target in zip(predicted, targets, strict=True):
        symbols = target.split()
        right += sum(a == b for a, b in zip(guess.split(), symbols, strict=False))
        total += len(symbols)
    exact = np.mean([guess == target for guess, target in zip(predicted, targets, strict=True)])
    return {"exact": float(exact), "symbols": right / total}


def make(config, store=None):
    """Returns the dataset of translation, with the scores of `score`."""

    def score_rows(split, outputs, rows) -> dict:
        results = translation.decode(config, store, split, outputs, rows)
        targets = [target for _, target in translation.read_texts(store, split, rows)]
        return score([result["prediction"] for result in results], targets)

    return replace(translation.make(config, store), score=score_rows)


EXAMPLES = replace(translation.EXAMPLES, load=load)
