"""Reviews of predictions: confusions and worst errors are those of the logits."""

import numpy as np
import pytest
from kits.small import small_config

from bert_jax.tasks.supervised import reviews
from bert_jax.tasks.translation import scores

NAMES = ("a", "b", "c")


def test_confusions_and_errors_of_classes():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(60, 3))
    targets = draw.integers(0, 3, 60)
    review = reviews.of_classes(NAMES, logits, targets, lambda row: f"text {row}", 2)
    predicted = logits.argmax(axis=1)
    (_, *heads), *rows = review["tables"]["confusions"]
    assert tuple(heads) == NAMES and [row[0] for row in rows] == [*NAMES]
    expected = metrics.confusion_matrix(targets, predicted).tolist()
    assert [row[1:] for row in rows] == expected
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    of_target = np.where(predicted == targets, 2, shares[np.arange(60), targets])
    worst = np.argsort(of_target)[: reviews.ERRORS]
    errors = review["tables"]["worst errors"][1:]
    assert [error[-1] for error in errors] == [f"text {row}" for row in worst]
    first = worst[0]
    pair = NAMES[predicted[first]], NAMES[targets[first]], shares[first].max()
    assert errors[0][:3] == [*pair[:2], pytest.approx(pair[2], abs=1e-3)]
    text, part = review["samples"][1]
    assert (text, part["guess"]) == ("text 1", NAMES[predicted[1]]) and len(review["samples"]) == 2


def test_bleu_by_length_is_that_of_each_group():
    sacrebleu = pytest.importorskip("sacrebleu")
    keys = "model.name=transformer", "objective.name=translation", "task.name=translation"
    config = small_config(*keys, "task.text=source,target", "task.max_pieces=20")
    sources = ["a b", "a " * 15, "b c d e f"]
    targets = ["the cat sat on the mat", "one two three four five six", "a b c d e f g"]
    predicted = [targets[0], "one two", "a b c d e f h"]
    results = [{"prediction": text, "at_limit": False} for text in predicted]
    table = scores.by_length(config, results, [*zip(sources, targets, strict=True)])
    short, long = table["BLEU by length"][1:]
    chosen = [predicted[0], predicted[2]], [[targets[0], targets[2]]]
    expected = sacrebleu.corpus_bleu(*chosen, force=True).score
    assert short == ["0 to 9", 2, pytest.approx(expected, abs=0.01)]
    assert long[:2] == ["10 to 19", 1]
