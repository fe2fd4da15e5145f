"""Predictions: what the logits of labels say.

N examples, C labels.
"""

import json
import re
from itertools import compress

import jax
import numpy as np

from bert_jax.errors import BadInput


def of_labels(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns [N] the classes or numbers, or bool[N, C] which labels apply.

    kind: classes, labels or number, see tasks/classification.
    logits: float32[N, 1, C] or, of choices, [N, C, 1]; C is 1 for numbers.
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
