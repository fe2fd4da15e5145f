"""What an evaluation leaves of the predictions of classes: those of the first rows, confusions, the worst errors.

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
    """Returns a review, see Dataset.review, with `errors`, those whose target is least probable, and `confusions`, the
    number of examples of each class, a row, by prediction, a column.

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
    if len(names) <= CLASSES:
        counts = np.zeros((len(names), len(names)), int)
        np.add.at(counts, (targets, guesses), 1)
        rows = [[name, *line] for name, line in zip(names, counts.tolist(), strict=True)]
        tables["confusions"] = [["label, by prediction", *names], *rows]
    samples = [[text(row)[:CHARACTERS], part(row)] for row in range(min(number, len(guesses)))]
    return {"samples": samples, "tables": tables}


def text_of(split: Split, tokenizer, row: np.ndarray) -> str:
    """Returns the texts of a row int64[S, 5 or more], see texts.pairs, as far as the model reads them."""
    spans = dict.fromkeys(map(tuple, row[:, :EXAMPLE].reshape(-1, 2).tolist()))
    parts = [split.tokens[start : start + size].tolist() for start, size in spans]
    return " | ".join(map(tokenizer.decode, filter(None, parts)))
