"""Predictions: what the logits of labels say.

N examples, C labels, L length.
"""

import json
import re
from itertools import compress

import jax
import numpy as np

from bert_jax.errors import BadInput
from bert_jax.tasks.token_classification import entity_labels


def of_labels(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns [N] the classes or numbers, or bool[N, C] which labels apply.

    kind: classes, labels or number, see tasks/classify.py. logits: float32[N, 1, C] or, of choices, [N, C, 1]; C is 1
    for numbers.
    """
    logits = logits.reshape(len(logits), -1)
    if kind == "number":
        return logits[:, 0]
    return logits.argmax(-1) if kind == "classes" else logits > 0


def describe(kind: str, logits: np.ndarray, names: tuple[str, ...]) -> list[dict]:
    """Returns {prediction, probabilities} of each example: the name of the class, the names of the labels, or a number,
    which has no probabilities. kind, logits: see `of_labels`."""
    found, is_one = of_labels(kind, logits), kind == "classes"
    logits = logits.reshape(len(logits), -1)
    if kind == "number":
        return [
            {"prediction": float(str(value))} for value in found
        ]  # with the digits of a float32
    chosen = [names[row] if is_one else [*compress(names, row)] for row in found]
    shares = np.asarray(jax.nn.softmax(logits) if is_one else jax.nn.sigmoid(logits))
    return [
        {"prediction": name, "probabilities": dict(zip(names, row, strict=True))}
        for name, row in zip(chosen, shares.tolist(), strict=True)
    ]


def of_words(logits: np.ndarray, sizes: np.ndarray, targets: list, names: tuple) -> list[dict]:
    """Returns {prediction} of each sentence: the name of the label of each word, O if the word is not in the row.

    logits: float32[N, L, C]. sizes: int[N], the pieces in the row, which are behind [CLS]. targets: for each sentence,
    those of all its pieces, int[pieces]: -1 but for the first piece of a word.
    """
    firsts = [np.flatnonzero(pieces >= 0) for pieces in targets]
    found = zip(logits.argmax(-1), sizes, firsts, strict=True)
    outside = entity_labels.outside(names)
    return [
        {"prediction": [names[row[1 + n]] if n < size else outside for n in places]}
        for row, size, places in found
    ]


def text(results: list[dict], suffix: str) -> str:
    """Returns the text of a file of predictions: of a .json with {id: prediction}, as SQuAD wants it, else an index and
    a prediction a line, as GLUE wants it. Raises BadInput for results of a masked LM."""
    if "prediction" not in results[0]:
        raise BadInput("--output: for fine-tuned models; see --json")
    if suffix == ".json":
        return json.dumps({e.get("id", i): e["prediction"] for i, e in enumerate(results)})
    rows = (f"{i}\t{plain(result['prediction'])}\n" for i, result in enumerate(results))
    return "".join(["index\tprediction\n", *rows])


def with_text(result: dict) -> str:
    """Returns the text and the prediction of an example, or each word with its label, in lines."""
    found, shares = result["prediction"], result.get("probabilities", {})
    if isinstance(found, list) and not shares:  # a label for each word
        return "\n".join(map("{} {}".format, result["text"].split(" | "), found)) + "\n"
    share = f"  {shares[str(found)]:.3f}" if str(found) in shares else ""
    return f"{result['text'][:80]}\n  {plain(found)}{share}"


def plain(prediction) -> str:
    """Returns a prediction as text in one line without tabs."""
    text = ",".join(prediction) if isinstance(prediction, list) else str(prediction)
    return re.sub(r"[\t\r\n]+", " ", text)
