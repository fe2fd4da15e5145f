"""Exact match and F1 of answers by the rules of SQuAD (arXiv:1606.05250, and 2.0: arXiv:1806.03822), as shares.

N questions. A question may have several correct answers, of which the most similar one counts, or none.
"""

import re
import string
from collections import Counter

import numpy as np

NAMES = ("exact", "f1", "has_answer_f1", "no_answer_f1", "best_exact", "best_f1")


def normalize(text: str) -> list[str]:
    """Returns the words of a text that are compared: lower case, without punctuation and articles."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(correct: list[str], said: list[str]) -> float:
    """Returns the F1 of the words of an answer."""
    if not correct or not said:
        return float(correct == said)
    common = (Counter(correct) & Counter(said)).total()
    return 2 * common / (len(correct) + len(said))


def compare(answers: list[str], text: str) -> tuple[float, float]:
    """Returns the exact match and F1 of a text with the correct answers; without any, '' is correct."""
    said = normalize(text)
    correct = [words for words in map(normalize, answers) if words] or [[]]
    return float(said in correct), max(f1(words, said) for words in correct)


def score(answers: list[list[str]], texts: list[str]) -> dict:
    """Returns {exact, f1} of texts given as answers to N questions; if some questions have no answer, also
    {has_answer_f1, no_answer_f1}, as far as there are such questions."""
    scores = np.array([*map(compare, answers, texts)])
    result = {"exact": scores[:, 0].mean(), "f1": scores[:, 1].mean()}
    have_answers = np.array([*map(bool, answers)])
    if not have_answers.all():
        if have_answers.any():
            result["has_answer_f1"] = scores[have_answers, 1].mean()
        result["no_answer_f1"] = scores[~have_answers, 1].mean()
    return result


def best_scores(answers: list[list[str]], results: list[dict]) -> dict:
    """Returns the highest {best_exact, best_f1} that any null_threshold reaches, and best_threshold, that of best_f1.

    results: what answers.predict returns for N questions.
    """
    spans = []
    for result in results:
        texts = [span["text"] for span in result["nbest"] if span["text"]]
        spans.append(texts[0] if texts else "")
    differences = np.array([result["null_score_difference"] for result in results])
    order = np.argsort(differences, kind="stable")
    have_none = ~np.array([*map(bool, answers)])[order, None]
    scores = np.array([*map(compare, answers, spans)])[order]
    # Sums over all questions if the first n of them get their best span and the others '', n = 0 to N.
    gains = np.cumsum(np.where(have_none, -1, scores), axis=0)
    sums = have_none.sum() + np.append([[0, 0]], gains, axis=0)
    thresholds = np.append(differences.min() - 1, differences[order])
    sums[:-1][np.diff(thresholds) == 0] = -1  # no threshold is between equal differences
    exact, f1 = sums.max(axis=0) / len(results)
    return {
        "best_exact": exact,
        "best_f1": f1,
        "best_threshold": thresholds[sums[:, 1].argmax()],
    }
