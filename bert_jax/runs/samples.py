"""Samples of held-out rows: what a model predicts in them.

A sample has the `parts` of a text, each a text or a token that was guessed: {target, guess, probability,
target_probability}. That of a task with examples has text, target and prediction, see tasks/supervised/reviews.py.
"""

import math

import numpy as np

LENGTH = 96  # pieces of a row that are kept, at most
CHARACTERS = 120  # of a text in a line of the log
IN_LINE = 4  # guesses in a line of the log, at most
AROUND = 10  # words before the first and after the last of these


def of_rows(guesses: dict[str, np.ndarray], tokenizer) -> list[dict]:
    """Returns {parts} of each row that has a guess. guesses: see objectives.base.guess."""
    rows = []
    for row, is_real in enumerate(guesses["is_real"]):
        chosen = np.flatnonzero(is_real)[:LENGTH]
        arrays = {name: array[row, chosen] for name, array in guesses.items()}
        if arrays["is_guessed"].any():
            rows.append({"parts": of_row(arrays, tokenizer)})
    return rows


def of_row(arrays: dict[str, np.ndarray], tokenizer) -> list:
    """Returns the parts of a row. arrays: [L] each."""
    parts = []
    start = 0
    targets = arrays["targets"]
    for position in np.flatnonzero(arrays["is_guessed"]).tolist():
        parts.append(tokenizer.decode(targets[start:position].tolist()))
        part = {
            "target": tokenizer.readable(targets[position]),
            "guess": tokenizer.readable(arrays["guesses"][position]),
            "probability": probability(arrays["guess_nats"][position]),
            "target_probability": probability(arrays["target_nats"][position]),
        }
        parts.append(part)
        start = position + 1
    parts.append(tokenizer.decode(targets[start:].tolist()))
    return [part for part in parts if part]


def probability(nats: float) -> float:
    """Returns the probability of a token with four digits; 0 of one whose loss is not finite."""
    return round(math.exp(-nats), 4) if math.isfinite(nats) else 0.0


def as_text(sample: dict) -> str:
    """Returns a sample as one line: its first guesses, [guess 0.71] or [guess 0.30, not target], and some words around
    them, or its prediction and its target."""
    if "prediction" in sample:
        text = f"{sample['text'][:CHARACTERS]} -> {sample['prediction']}"
        if sample["prediction"] != sample["target"]:
            text += f", not {sample['target']}"
        return " ".join(text.split())
    words = []
    guessed = []
    for part in sample["parts"]:
        if isinstance(part, str):
            words += part.split()
        else:
            guessed.append(len(words))
            words.append(guess_as_text(part))
    first = max(0, guessed[0] - AROUND)
    last = guessed[:IN_LINE][-1] + AROUND + 1
    before = ["…"] if first else []
    after = ["…"] if last < len(words) else []
    return " ".join([*before, *words[first:last], *after])


def guess_as_text(part: dict) -> str:
    """Returns a guess, with its target if that is another token."""
    text = f"{part['guess']} {part['probability']:.2f}"
    if part["guess"] != part["target"]:
        text += f", not {part['target']}"
    return f"[{text}]"
