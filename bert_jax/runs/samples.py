"""Samples of held-out rows: what a model predicts in them.

A sample is a list of parts: texts, and predictions {guess, target, probability}, in the place of the target in a text
or after the text; a translation has no probability.
"""

import numpy as np

LENGTH = 96  # pieces of a row that are kept, at most
IN_LINE = 4  # predictions in a line of the log, at most
AROUND = 10  # words before the first and after the last of these


def of_rows(guesses: dict[str, np.ndarray], tokenizer) -> list[list]:
    """Returns a sample of each row that has a guess. guesses: see objectives.base.guess."""
    rows = []
    for row, is_real in enumerate(guesses["is_real"]):
        chosen = np.flatnonzero(is_real)[:LENGTH]
        arrays = {name: array[row, chosen] for name, array in guesses.items()}
        if arrays["is_guessed"].any():
            rows.append(of_row(arrays, tokenizer))
    return rows


def of_row(arrays: dict[str, np.ndarray], tokenizer) -> list:
    """Returns the sample of a row. arrays: [L] each."""
    parts = []
    start = 0
    targets = arrays["targets"].tolist()
    for position in np.flatnonzero(arrays["is_guessed"]).tolist():
        parts.append(tokenizer.decode(targets[start:position]))
        part = {
            "guess": tokenizer.readable(arrays["guesses"][position]),
            "target": tokenizer.readable(targets[position]),
            "probability": round(float(np.exp(-arrays["guess_nats"][position])), 3),
        }
        parts.append(part)
        start = position + 1
    parts.append(tokenizer.decode(targets[start:]))
    return [part for part in parts if part]


def as_text(parts: list) -> str:
    """Returns a sample as one line: the first predictions, [guess 0.71] or [guess 0.30, not target], and some words
    around them."""
    words = []
    predicted = []
    for part in parts:
        if isinstance(part, str):
            words += part.split()
            continue
        is_right = part["guess"] == part["target"]
        share = f" {part['probability']}" if "probability" in part else ""
        end = "" if is_right else f", not {part['target']}"
        predicted.append(len(words))
        words.append(f"[{part['guess']}{share}{end}]")
    first = max(0, predicted[0] - AROUND)
    last = predicted[:IN_LINE][-1] + AROUND + 1
    return " ".join(words[first:last])
