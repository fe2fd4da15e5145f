"""Answers that are spans of a text, from the logits of all its windows (arXiv:1810.04805, sections 4.2 and 4.3).

W pieces of a window.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bert_jax.tasks.question_answering.windows import Window

COUNT = 20  # candidates for an answer


def predict(windows: list[Window], text: str, longest: int, threshold: float | None) -> dict:
    """Returns the answer to a question: its `prediction`, exact text; `score`; `null_score_difference`; and `nbest`.

    nbest has {text, start, end, score, probability} of the candidates, see below, and of '' if it may be predicted; the
    probabilities are those among them.

    longest: pieces of an answer at most.
    threshold: the prediction is '', no answer, if the lowest score of no answer in a window exceeds that of the best
        span by more; None: it never is.
    """
    null = min(float(window.null) for window in windows)
    no_answer = {
        "text": "",
        "start": 0,
        "end": 0,
        "score": null,
    }
    nbest = candidates(windows, text, longest) or [no_answer]
    best = nbest[0]
    difference = null - best["score"]
    if threshold is not None:
        nbest = sorted([*nbest, no_answer], key=lambda span: -span["score"])
    odds = np.exp([span["score"] - nbest[0]["score"] for span in nbest])
    for span, probability in zip(nbest, (odds / odds.sum()).tolist(), strict=True):
        span["probability"] = probability
    is_null = threshold is not None and difference > threshold
    return {
        "prediction": "" if is_null else best["text"],
        "score": best["score"],
        "null_score_difference": difference,
        "nbest": nbest,
    }


def candidates(windows: list[Window], text: str, longest: int) -> list[dict]:
    """Returns {text, start, end, score} of the best spans with different texts, the best one first.

    start, end: in characters, without spaces around the span. score: the sum of its two logits.
    """
    spans = []
    for logits, offsets, _ in windows:
        last_logits = np.pad(logits[:, 1], (0, longest - 1), constant_values=-np.inf)
        scores = logits[:, :1] + sliding_window_view(last_logits, longest)  # [W, longest]
        count = min(COUNT, scores.size)
        top = np.argpartition(-scores, count - 1, axis=None)[:count]
        top = top[np.isfinite(scores.flat[top])]
        first, size = np.unravel_index(top, scores.shape)
        columns = scores[first, size], offsets[first, 0], offsets[first + size, 1]
        spans += zip(*(column.tolist() for column in columns), strict=True)
    best = {}
    for score, start, end in sorted(spans, reverse=True):
        span = text[start:end].strip()
        start = text.find(span, start)
        if span and span not in best:
            best[span] = {
                "text": span,
                "start": start,
                "end": start + len(span),
                "score": score,
            }
    return list(best.values())[:COUNT]
