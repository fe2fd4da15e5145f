"""What an evaluation leaves of the predictions of a split: those of its first rows, its worst errors, confusions.

N examples, C labels.
"""

from collections.abc import Callable

import numpy as np

from bert_jax.data.dataset import A_START, EXAMPLE
from bert_jax.data.store import Split
from bert_jax.tasks.supervised import predictions

ERRORS = 10  # worst ones that are kept
CHARACTERS = 400  # of a text that are kept
CLASSES = 30  # of confusions, at most


def of_labels(
    kind: str, names: tuple, logits: np.ndarray, targets: np.ndarray, text: Callable, count: int
) -> dict:
    """Returns {samples, errors, labels, confusion}; the last two of classes alone.

    A sample or an error is {text, target, prediction}, and of classes the `probability` of the prediction. Errors are
    those with the largest loss, the worst one first. A confusion is the number of examples of each label, a row, with
    each prediction, a column.

    kind, logits: see predictions.of_labels.
    targets: [N], or [N, C] of several labels.
    text: (number of a row) -> its text.
    count: of samples.
    """
    results = predictions.describe(kind, logits, names)
    correct = predictions.describe(kind, as_logits(kind, targets, len(names)), names)
    is_wrong = np.array(
        [a["prediction"] != b["prediction"] for a, b in zip(results, correct, strict=True)]
    )
    order = np.argsort(-np.where(is_wrong, losses(kind, logits, targets), -np.inf), kind="stable")

    def line(number: int) -> dict:
        prediction = results[number]["prediction"]
        values = {"target": correct[number]["prediction"], "prediction": prediction}
        if kind == "classes":
            values["probability"] = round(results[number]["probabilities"][prediction], 4)
        return {"text": text(number)[:CHARACTERS], **values}

    review = {
        "samples": [line(number) for number in range(min(count, len(results)))],
        "errors": [line(number) for number in order[: min(ERRORS, is_wrong.sum())].tolist()],
    }
    if kind == "classes" and len(names) <= CLASSES:
        confusion = np.zeros((len(names), len(names)), int)
        np.add.at(confusion, (targets, predictions.of_labels(kind, logits)), 1)
        review |= {"labels": [*names], "confusion": confusion.tolist()}
    return review


def as_logits(kind: str, targets: np.ndarray, classes: int) -> np.ndarray:
    """Returns logits float32[N, 1, C] that predict the targets."""
    if kind == "classes":
        return np.eye(classes, dtype=np.float32)[targets, None]
    if kind == "labels":
        return targets[:, None] - np.float32(0.5)
    return targets[:, None, None]


def losses(kind: str, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns float[N], how wrong each prediction is: nats of the class or of the labels, or the difference."""
    logits = logits.reshape(len(logits), -1).astype(np.float64)
    if kind == "number":
        return np.abs(logits[:, 0] - targets)
    if kind == "labels":
        return np.logaddexp(0, np.where(targets > 0, -logits, logits)).sum(axis=1)
    of_target = np.take_along_axis(logits, targets[:, None].astype(int), axis=1)
    return np.logaddexp.reduce(logits - of_target, axis=1)


def reader(split: Split, tokenizer, rows: np.ndarray) -> Callable:
    """Returns the function (number of a row) -> its texts, as far as the model reads them.

    rows: int64[R, S, 5 or more], see texts.pairs.
    """

    def text(number: int) -> str:
        spans = rows[number, :, A_START:EXAMPLE].reshape(-1, 2).tolist()
        shown = dict.fromkeys((start, size) for start, size in spans if size)
        parts = [
            tokenizer.decode(split.tokens[start : start + size].tolist()) for start, size in shown
        ]
        return " | ".join(parts)

    return text
