"""What a run predicted in held-out rows, as HTML: samples as they change, confusions, worst errors, BLEU by length."""

from html import escape

import numpy as np

from bert_jax.pages import charts
from bert_jax.pages.charts import Figures
from bert_jax.pages.history import History
from bert_jax.pages.html import table

EVALUATIONS = 6  # of a run that are shown


def describe(figures: Figures, run: History) -> list[str]:
    """Returns the samples of a run, and the review of its last evaluation; [] of a run without them."""
    rows = {}
    reviews = []
    for line in run.samples:
        if line["row"] is None:
            reviews.append(line)
        elif "parts" in line or "prediction" in line:
            rows.setdefault(line["row"], []).append(line)
    if not rows:
        return []
    parts = [describe_row(lines) for lines in rows.values()]
    if reviews:
        parts += describe_review(figures, reviews[-1])
    return parts


def describe_row(lines: list[dict]) -> str:
    """Returns a table of what was predicted in a row at some evaluations, from the first to the last one."""
    numbers = np.unique(np.linspace(0, len(lines) - 1, EVALUATIONS).round().astype(int))
    last = lines[-1]
    head = ""
    if "prediction" in last:
        head = f"<p>{escape(last['text'])}<br>target: {escape(str(last['target']))}</p>\n"
    cells = []
    for number in numbers:
        line = lines[number]
        if "parts" in line:
            content = " ".join(map(describe_part, line["parts"]))
        else:
            content = marked(line["prediction"], line["target"], line.get("probability"), False)
        cells.append(f'<tr><td class="step">step {line["step"]:,}</td><td>{content}</td></tr>')
    return "\n".join([f"{head}<table>", *cells, "</table>"])


def describe_part(part: str | dict) -> str:
    """Returns a part of a text, see runs/samples.py."""
    if isinstance(part, str):
        return escape(part)
    return marked(part["guess"], part["target"], part["probability"])


def marked(prediction, target, probability: float | None, names_target: bool = True) -> str:
    """Returns a prediction with a solid line under it if it is right, otherwise a dashed one and the target."""
    title = "" if probability is None else f' title="probability {probability}"'
    text = escape(str(prediction))
    if prediction == target:
        return f'<span class="right"{title}>{text}</span>'
    more = f" <small>not {escape(str(target))}</small>" if names_target else ""
    return f'<span class="wrong"{title}>{text}{more}</span>'


def describe_review(figures: Figures, review: dict) -> list[str]:
    """Returns the confusions, the worst errors, and BLEU by length of an evaluation, as far as it has them."""
    parts = []
    step = f"step {review['step']:,}"
    if "confusion" in review:
        spec = charts.heatmap(review["labels"], review["confusion"], ("prediction", "target"))
        parts.append(figures.add(spec, f"examples of each label by prediction, {step}"))
    if review.get("errors"):
        rows = []
        for error in review["errors"]:
            share = error.get("probability", "")
            rows.append([error["text"], error["target"], error["prediction"], share])
        heads = "text", "target", "prediction", "probability"
        parts += [f"<h3>Worst errors, {step}</h3>", table(rows, heads)]
    if "bleu_by_length" in review:
        groups = review["bleu_by_length"]
        bars = {name_of(group): group["bleu"] for group in groups}
        parts.append(figures.add(charts.bars(bars, "BLEU"), f"BLEU by words of the source, {step}"))
    return parts


def name_of(group: dict) -> str:
    """Returns the name of a group of pairs by length, see tasks/translation/scores.py."""
    last = "more" if group["last"] is None else group["last"]
    return f"{group['first']} to {last} words, {group['number']:,} pairs"
