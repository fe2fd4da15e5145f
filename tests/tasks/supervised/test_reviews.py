"""What an evaluation leaves of predictions: confusions and worst errors are those of the logits."""

import numpy as np
import pytest

from bert_jax.tasks.supervised import reviews

NAMES = ("a", "b", "c")


def review(kind: str, logits, targets, names=NAMES) -> dict:
    logits = np.array(logits, np.float32)
    logits = logits.reshape(len(logits), 1, -1)
    return reviews.of_labels(kind, names, logits, np.array(targets), lambda row: f"text {row}", 2)


def test_confusions_and_errors_of_classes():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(60, 3))
    targets = draw.integers(0, 3, 60)
    values = review("classes", logits, targets)
    predicted = logits.argmax(axis=1)
    expected = metrics.confusion_matrix(targets, predicted).tolist()
    assert (values["labels"], values["confusion"]) == (["a", "b", "c"], expected)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    of_target = np.where(predicted == targets, 2, shares[np.arange(60), targets])
    worst = np.argsort(of_target)[: reviews.ERRORS]
    assert [error["text"] for error in values["errors"]] == [f"text {row}" for row in worst]
    first = values["errors"][0]
    assert (first["target"], first["prediction"]) == (
        NAMES[targets[worst[0]]],
        NAMES[predicted[worst[0]]],
    )
    assert first["probability"] == pytest.approx(shares[worst[0]].max(), abs=1e-4)
    assert [sample["text"] for sample in values["samples"]] == ["text 0", "text 1"]


def test_errors_of_numbers_and_of_several_labels():
    numbers = review("number", [1.0, 2.5, 9.0], np.float32([1.0, 2.0, 3.0]), names=())
    assert "confusion" not in numbers
    assert [(each["target"], each["prediction"]) for each in numbers["errors"]] == [
        (3, 9),
        (2, 2.5),
    ]
    logits = [[3.0, -3.0, -3.0], [-9.0, 5.0, -1.0], [1.0, 1.0, -1.0]]
    several = review("labels", logits, np.float32([[1, 0, 0], [1, 1, 0], [0, 1, 0]]))
    pairs = [(each["target"], each["prediction"]) for each in several["errors"]]
    assert pairs == [(["a", "b"], ["b"]), (["b"], ["a", "b"])]


def test_bleu_by_length_is_that_of_each_group():
    sacrebleu = pytest.importorskip("sacrebleu")
    from kits.small import small_config

    from bert_jax.tasks.translation import scores

    keys = "model.name=transformer", "objective.name=translation", "task.name=translation"
    config = small_config(*keys, "task.text=source,target")
    sources = ["a b", "a " * 15, "b c d e f"]
    targets = ["the cat sat on the mat", "one two three four five six", "a b c d e f g"]
    results = [
        {"prediction": text, "at_limit": False} for text in (targets[0], "one two", "a b c d e f h")
    ]
    short, long = scores.by_length(config, results, [*zip(sources, targets, strict=True)])
    assert (short["first"], short["last"], short["number"]) == (0, 9, 2)
    assert (long["first"], long["last"], long["number"]) == (10, 19, 1)
    chosen = [results[number]["prediction"] for number in (0, 2)]
    expected = sacrebleu.corpus_bleu(chosen, [[targets[0], targets[2]]], force=True).score
    assert short["bleu"] == pytest.approx(expected)
