"""Reviews of the predictions of an evaluation: those of the first rows, confusions, the worst errors.

N examples, C classes.
"""

from collections.abc import Callable
from itertools import compress

import numpy as np

from bert_jax.data.dataset import EXAMPLE
from bert_jax.data.store import Split

ERRORS = 10  # worst ones that are kept
CHARACTERS = 400  # of a text that are kept
NO_LABEL = "(none)"
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


def of_texts(guesses: list[str], targets: list[str], text: Callable, number: int, errors=None):
    """Returns a review, see Dataset.review, of predictions that are texts, with the wrong ones of the largest errors.

    text, number: see `of_classes`.
    errors: float[N], 0 of those that are right; by default whether they differ.
    """
    pairs = [*zip(guesses, targets, strict=True)]
    if errors is None:
        errors = np.array([guess != target for guess, target in pairs], float)
    order = np.argsort(-errors, kind="stable")
    wrong = order[errors[order] > 0][:ERRORS].tolist()
    rows = [[*pairs[row], text(row)[:CHARACTERS]] for row in wrong]
    samples = []
    for row, (guess, target) in enumerate(pairs[:number]):
        samples.append([text(row)[:CHARACTERS], {"guess": guess, "target": target}])
    tables = {"wrong predictions": [["prediction", "target", "text"], *rows]}
    return {"samples": samples, "tables": tables}


def names_of(labels: tuple, values: np.ndarray) -> list[str]:
    """Returns the text of each of the numbers [N], or the names of the labels that apply by [N, C]."""
    if values.ndim == 1:
        return [f"{number:.4g}" for number in values]
    return [",".join(compress(labels, row)) or NO_LABEL for row in values]


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
