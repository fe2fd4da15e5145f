"""Minimal pairs (BLiMP, arXiv:1912.00582): how often a model finds the acceptable sentence of two more probable."""

import numpy as np

from bert_jax.inference import table

# Of two scores, in nats. Less is the rounding of float32, by which even a model that ignores its input has differences.
TOLERANCE = 1e-4


def measure(good: np.ndarray, bad: np.ndarray, groups: dict[str, list[str]]) -> dict:
    """Returns the `accuracy` of all pairs, and as `by` {key: {value: accuracy}} of those with each value of a key.

    good, bad: float64[pairs], log-probabilities of the acceptable and of the other sentences.
    groups: {key: its value for each pair}.
    """
    is_equal = np.abs(good - bad) <= TOLERANCE
    marks = np.where(is_equal, 0.5, good > bad)
    result = accuracy(marks)
    result["by"] = {}
    for key, values in groups.items():
        column = np.array(values)
        result["by"][key] = {
            str(value): accuracy(marks[column == value]) for value in np.unique(column)
        }
    return result


def accuracy(marks: np.ndarray) -> dict:
    """Returns {accuracy, standard_error, ties, pairs} of pairs.

    marks: 1 for a correct pair, 0 for a wrong one, 1/2 for a tie, whose sentences have equal scores.
    """
    return {
        "accuracy": float(marks.mean()),
        "standard_error": float(marks.std() / np.sqrt(len(marks))),
        "ties": int((marks == 0.5).sum()),
        "pairs": len(marks),
    }


def describe(result: dict) -> str:
    """Returns the values of `measure` as a table."""
    rows = [{"group": "all"} | result]
    for key, by_value in result["by"].items():
        rows += [{"group": f"{key} {value}"} | line for value, line in by_value.items()]
    return "\n".join(table.lines(rows))
