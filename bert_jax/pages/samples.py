"""What a run predicted in held-out rows, as HTML: samples as they change, confusions, worst errors, BLEU by length."""

import itertools
from html import escape

import numpy as np

from bert_jax.pages.history import History
from bert_jax.pages.html import table

EVALUATIONS = 6  # of a run that are shown


def describe(run: History) -> list[str]:
    """Returns the samples of a run, and the review of its last evaluation; [] of a run without them."""
    parts = ["<h3>Samples</h3>"] if run.samples else []
    rows = itertools.groupby(sorted(run.samples, key=row_of), row_of)
    for row, lines in rows:
        lines = [*lines]
        if row < 0:
            parts += describe_review(lines[-1])
            continue
        numbers = np.linspace(0, len(lines) - 1, EVALUATIONS).round().astype(int)
        parts.append("<table>")
        for number in np.unique(numbers):
            parts.append(describe_line(lines[number]))
        parts.append("</table>")
    return parts


def row_of(line: dict) -> int:
    """Returns the number of the row of a line of samples.jsonl; -1 of a review."""
    return -1 if line["row"] is None else line["row"]


def describe_line(line: dict) -> str:
    """Returns a row of a table with a sample, see runs/samples.py."""
    parts = []
    for part in line["parts"]:
        if isinstance(part, str):
            parts.append(escape(part))
            continue
        is_right = part["guess"] == part["target"]
        text = part["guess"] if is_right else f"{part['guess']} (not {part['target']})"
        title = f"probability {part.get('probability', 'unknown')}"
        kind = "right" if is_right else "wrong"
        parts.append(f'<span class="{kind}" title="{title}">{escape(text)}</span>')
    return f'<tr><td class="step">step {line["step"]}</td><td>{" ".join(parts)}</td></tr>'


def describe_review(review: dict) -> list[str]:
    """Returns the tables of the review of an evaluation, such as confusions, see Dataset.review."""
    parts = []
    for name, rows in review["tables"].items():
        parts.append(f"<h4>{escape(name)}, step {review['step']}</h4>")
        parts.append(table(rows[1:], rows[0]))
    return parts
