"""Predictions: what the logits of labels say.

N examples, C labels.
"""

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain, compress

import jax
import numpy as np

from bert_jax.storage import json_file


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
    """Returns the text of a file of predictions.

    .json: {id: prediction}, as SQuAD wants it. .jsonl: a result a line. .csv: a table with scores and the probability
    of each class. .tsv: an index and a prediction a line, as GLUE wants it. Any other: a prediction a line. Of
    sentences, all but .json and .jsonl have the labels of a word in a line, as the script conlleval reads them, and an
    empty line behind each sentence.
    """
    if suffix == ".json":
        return json_file.encode({r.get("id", n): r["prediction"] for n, r in enumerate(results)})
    if suffix == ".jsonl":
        return "".join(f"{json_file.encode(result, ensure_ascii=False)}\n" for result in results)
    predicted = [as_line(result["prediction"]) for result in results]
    rows = zip(predicted)
    if "words" in results[0]:
        rows = chain.from_iterable([*result["words"], ()] for result in results)
    elif suffix == ".csv":
        rows = rows_of_table(results)
    elif suffix == ".tsv":
        rows = [("index", "prediction"), *enumerate(predicted)]
    if suffix == ".csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(rows)
        return file.getvalue()
    mark = "\t" if suffix == ".tsv" else " "
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


def rows_of_table(results: list[dict]) -> Iterator[list]:
    """Yields the header and the rows of a table: `id` or else `text`, `prediction`, and `score` or the probability of
    each class, if the results have them."""
    first = results[0]
    names = ["id" if "id" in first else "text", *({"score"} & first.keys())]
    yield [names[0], "prediction", *names[1:], *first.get("probabilities", ())]
    for result in results:
        name, *numbers = map(result.get, names)
        # As in the header: csv quotes line breaks.
        prediction = as_text(result["prediction"])
        yield [name, prediction, *numbers, *result.get("probabilities", {}).values()]


def with_text(result: dict) -> str:
    """Returns the text and the prediction of an example, or each word with its label, in lines."""
    if "words" in result:
        return text([result], "")
    prediction = result["prediction"]
    probabilities = result.get("probabilities", {})
    line = f"{as_line(result['text'][:80])}\n  {as_line(prediction)}"
    score = probabilities.get(str(prediction), result.get("score"))
    if score is not None:
        line += f"  {score:.3f}"
    return line


def as_line(prediction) -> str:
    """Returns a prediction as text in one line without tabs, whatever a program takes for a line break."""
    return re.sub(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+", " ", as_text(prediction))


def as_text(prediction) -> str:
    return ",".join(prediction) if isinstance(prediction, list) else str(prediction)
