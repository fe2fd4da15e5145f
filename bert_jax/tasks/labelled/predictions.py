"""Predictions: what the logits of labels say.

N examples, C labels.
"""

import json
import re
from itertools import compress

import jax
import numpy as np


def of_labels(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns [N] the classes or numbers, or bool[N, C] which labels apply.

    kind: classes, labels or number, see tasks/classification.
    logits: float32[N, 1, C] or, of choices, [N, C, 1]; C is 1 for numbers.
    """
    logits = logits.reshape(len(logits), -1)
    if kind == "number":
        return logits[:, 0]
    if kind == "classes":
        return logits.argmax(-1)
    return logits > 0


def describe(kind: str, logits: np.ndarray, names: tuple[str, ...]) -> list[dict]:
    """Returns {prediction, probabilities} of each example: the name of the class, the names of the labels, or a number,
    which has no probabilities. kind, logits: see `of_labels`."""
    predicted = of_labels(kind, logits)
    logits = logits.reshape(len(logits), -1)
    if kind == "number":
        # With the digits of a float32.
        return [{"prediction": float(str(number))} for number in predicted]
    if kind == "classes":
        predicted = [names[number] for number in predicted]
        probabilities = jax.nn.softmax(logits)
    else:
        predicted = [[*compress(names, applies)] for applies in predicted]
        probabilities = jax.nn.sigmoid(logits)
    return [
        {"prediction": prediction, "probabilities": dict(zip(names, row, strict=True))}
        for prediction, row in zip(predicted, probabilities.tolist(), strict=True)
    ]


def text(results: list[dict], suffix: str) -> str:
    """Returns the text of a file of predictions: of a .json {id: prediction}, as SQuAD wants it, of a .tsv an index and
    a prediction a line, as GLUE wants it, of any other a prediction a line."""
    if suffix == ".json":
        by_id = {}
        for number, result in enumerate(results):
            by_id[result.get("id", number)] = result["prediction"]
        return json.dumps(by_id)
    predicted = [as_line(result["prediction"]) for result in results]
    if suffix == ".tsv":
        numbered = [f"{number}\t{line}" for number, line in enumerate(predicted)]
        predicted = ["index\tprediction", *numbered]
    return "".join(f"{line}\n" for line in predicted)


def with_text(result: dict) -> str:
    """Returns the text and the prediction of an example, or each word with its label, in lines."""
    prediction = result["prediction"]
    probabilities = result.get("probabilities", {})
    if isinstance(prediction, list) and not probabilities:  # a label for each word
        words = result["text"].split(" | ")
        return "\n".join(map("{} {}".format, words, prediction)) + "\n"
    text = f"{result['text'][:80]}\n  {as_line(prediction)}"
    if str(prediction) in probabilities:  # a class
        text += f"  {probabilities[str(prediction)]:.3f}"
    return text


def as_line(prediction) -> str:
    """Returns a prediction as text in one line without tabs."""
    if isinstance(prediction, list):
        prediction = ",".join(prediction)
    return re.sub(r"[\t\r\n]+", " ", str(prediction))
