"""Predictions of a run in held-out rows, as HTML: samples as they change, confusions, worst errors, BLEU by length."""

from html import escape

import numpy as np

from bert_jax.pages.history import History
from bert_jax.pages.html import table

EVALUATIONS = 6  # of a run that are shown


def describe(run: History) -> list[str]:
    """Returns the samples of a run, and the review of its last evaluation; [] of a run without them."""
    parts = ["<h3>Samples</h3>"] if run.samples else []
    rows = {}
    for line in run.samples:
        rows.setdefault(text_of(line), []).append(line)
    reviews = rows.pop(None, [])
    for lines in rows.values():
        numbers = np.linspace(0, len(lines) - 1, EVALUATIONS).round().astype(int)
        parts.append("<table>")
        for number in np.unique(numbers):
            parts.append(describe_line(lines[number]))
        parts.append("</table>")
    if reviews:
        parts += describe_review(reviews[-1])
    return parts


def text_of(line: dict) -> str | None:
    """Returns the text of a line of samples.jsonl, which tells rows of all phases apart; None of a review."""
    if line["row"] is None:
        return None
    texts = [part if isinstance(part, str) else str(part["target"]) for part in line["parts"]]
    return " ".join(texts)


def describe_line(line: dict) -> str:
    """Returns a row of a table with a sample, see runs/samples.py."""
    parts = []
    for part in line["parts"]:
        if isinstance(part, str):
            parts.append(escape(part))
            continue
        is_right = part["guess"] == part["target"]
        text = part["guess"] if is_right else f"{part['guess']} (not {part['target']})"
        kind = "right" if is_right else "wrong"
        share = escape(str(part.get("probability", "")))
        parts.append(f'<span class="{kind}">{escape(text)}</span> <small>{share}</small>')
    step = escape(str(line["step"]))
    return f'<tr><td class="step">step {step}</td><td>{" ".join(parts)}</td></tr>'


def describe_review(review: dict) -> list[str]:
    """Returns the tables of the review of an evaluation, such as confusions, see Dataset.review."""
    parts = []
    for name, rows in review["tables"].items():
        parts.append(f"<h4>{escape(name)}, step {escape(str(review['step']))}</h4>")
        parts.append(table(rows[1:], rows[0]))
    return parts
