"""Reviews of the predictions of an evaluation: those of the first rows, confusions, the worst errors.

N examples, C classes.
"""

from collections.abc import Callable

import numpy as np

from bert_jax.data.dataset import EXAMPLE
from bert_jax.data.store import Split

ERRORS = 10  # worst ones that are kept
CHARACTERS = 400  # of a text that are kept
CLASSES = 30  # of confusions, at most


def of_classes(names: tuple, logits: np.ndarray, targets: np.ndarray, text: Callable, number: int):
    """Returns a review, see Dataset.review, with confusions, and the errors whose target is least probable.

    logits: float32[N, C]. targets: int[N].
    text: (number of a row) -> its text.
    number: of samples.
    """
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    guesses = logits.argmax(axis=1)
    of_targets = np.take_along_axis(shares, targets[:, None], axis=1)[:, 0]
    order = np.argsort(of_targets, kind="stable")
    errors = order[guesses[order] != targets[order]][:ERRORS]

    def part(row: int) -> dict:
        pair = {"guess": names[guesses[row]], "target": names[targets[row]]}
        return pair | {"probability": round(float(shares[row, guesses[row]]), 3)}

    rows = [[*part(row).values(), text(row)[:CHARACTERS]] for row in errors]
    tables = {"worst errors": [["prediction", "target", "probability", "text"], *rows]}
    tables |= confusions(names, targets, guesses)
    samples = [[text(row)[:CHARACTERS], part(row)] for row in range(min(number, len(guesses)))]
    return {"samples": samples, "tables": tables}


def of_texts(texts: list[str], guesses: list[str], targets: list[str], number: int) -> dict:
    """Returns a review, see Dataset.review, of predictions that are texts, with the first wrong ones."""
    rows = [*zip(guesses, targets, (text[:CHARACTERS] for text in texts), strict=True)]
    wrong = [row for row in rows if row[0] != row[1]][:ERRORS]
    samples = []
    for guess, target, text in rows[:number]:
        samples.append([text, {"guess": guess, "target": target}])
    tables = {"wrong predictions": [["prediction", "target", "text"], *wrong]}
    return {"samples": samples, "tables": tables}


def confusions(names: tuple, targets: np.ndarray, guesses: np.ndarray) -> dict:
    """Returns {title: table} of the number of targets int[N] of each class, a row, by prediction, a column; {} if there
    are too many classes."""
    if len(names) > CLASSES:
        return {}
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, (targets, guesses), 1)
    rows = [[name, *line] for name, line in zip(names, counts.tolist(), strict=True)]
    return {"confusions": [["label, by prediction", *names], *rows]}


def text_of(split: Split, tokenizer, row: np.ndarray) -> str:
    """Returns the texts of a row int64[S, 5 or more], see texts.pairs, as far as the model reads them."""
    spans = dict.fromkeys(map(tuple, row[:, :EXAMPLE].reshape(-1, 2).tolist()))
    parts = [split.tokens[start : start + size].tolist() for start, size in spans]
    return " | ".join(map(tokenizer.decode, filter(None, parts)))
