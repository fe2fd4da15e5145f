"""Predictions: what the logits of labels say.

N examples, C labels.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import compress

import jax
import numpy as np

from bert_jax.tasks.labelled.examples import Example


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


def with_example(example: Example, result: dict) -> dict:
    """Returns a result with the `text` of its example and, if the example is a sentence, its `words`, and its labels
    as `gold` if they are known."""
    named = {"text": " | ".join(filter(None, example.texts))}
    if isinstance(result["prediction"], list) and "probabilities" not in result:
        named["words"] = example.texts
        if example.label:
            named["gold"] = [word.label for word in example.label]
    return named | result


def text(results: list[dict], suffix: str) -> str:
    """Returns the text of a file of predictions.

    .json: {id: prediction}, as SQuAD wants it. .csv: a table with scores and the probability of each class. .tsv: an
    index and a prediction a line, as GLUE wants it. Any other: a prediction a line. Of sentences, all but .json have a
    line for each word, with the columns that the script conlleval reads, and an empty line behind each sentence.
    """
    if suffix == ".json":
        by_id = {}
        for number, result in enumerate(results):
            by_id[result.get("id", number)] = result["prediction"]
        return json.dumps(by_id)
    predicted = [as_line(result["prediction"]) for result in results]
    if "words" in results[0]:
        rows = rows_of_words(results)
    elif suffix == ".csv":
        rows = rows_of_table(results)
    elif suffix == ".tsv":
        rows = [("index", "prediction"), *enumerate(predicted)]
    else:
        rows = zip(predicted)
    if suffix == ".csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(rows)
        return file.getvalue()
    mark = "\t" if suffix == ".tsv" else " "
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


def rows_of_words(results: list[dict]) -> Iterator[tuple]:
    """Yields (word, label) of the words of sentences, (word, gold, label) if all have gold labels, and () behind each
    sentence."""
    names = ["words", "prediction"]
    if all("gold" in result for result in results):
        names.insert(1, "gold")
    for result in results:
        yield from zip(*(result[name] for name in names), strict=True)
        yield ()


def rows_of_table(results: list[dict]) -> Iterator[list]:
    """Yields the header and the rows of a table: `id` or else `text`, `prediction`, `score` if the results have one,
    and the probability of each class."""
    first = results[0]
    names = ["id" if "id" in first else "text", "prediction"]
    if "score" in first:
        names.append("score")
    yield [*names, *first.get("probabilities", ())]
    for result in results:
        cells = result | {"prediction": as_line(result["prediction"])}
        yield [*map(cells.get, names), *result.get("probabilities", {}).values()]


def with_text(result: dict) -> str:
    """Returns the text and the prediction of an example, or each word with its label, in lines."""
    if "words" in result:
        return text([result], "")
    prediction = result["prediction"]
    probabilities = result.get("probabilities", {})
    line = f"{result['text'][:80]}\n  {as_line(prediction)}"
    score = probabilities.get(str(prediction), result.get("score"))
    if score is not None:
        line += f"  {score:.3f}"
    return line


def as_line(prediction) -> str:
    """Returns a prediction as text in one line without tabs."""
    if isinstance(prediction, list):
        prediction = ",".join(prediction)
    return re.sub(r"[\t\r\n]+", " ", str(prediction))
