"""Answers from logits, against a search of all spans and thresholds; the loss of spans (transformers' logits:
convert/test_to_huggingface.py)."""

import jax
import numpy as np
import pytest
from kits import labelled
from kits.small import VOCABULARY, small_batch

from bert_jax.objectives import base
from bert_jax.tasks.question_answering import answer_scores, answers
from bert_jax.tasks.question_answering.windows import Window

SIZES = {"model.width": 32, "model.heads": 4, "model.layers": 2, "model.max_length": 32}
WORDS = [f"word{number}" for number in range(30)]
TEXT = " ".join(WORDS)
PLACES = [(TEXT.index(f"{word} "), len(word)) for word in WORDS[:-1]]
OFFSETS = np.array([(start, start + size) for start, size in PLACES])


def windows(draw) -> list[Window]:
    """Returns two windows of TEXT with random logits; they share seven words."""
    parts = slice(0, 17), slice(10, 29)
    logits = (draw.normal(0, 3, (len(OFFSETS[part]), 2)).astype(np.float32) for part in parts)
    values = zip(logits, parts, strict=True)
    return [Window(each, OFFSETS[part], float(draw.normal(4))) for each, part in values]


def every_span(found: list[Window], longest: int) -> dict[str, float]:
    """Returns {text: the highest sum of its logits in a window} of all spans."""
    best = {}
    for logits, offsets, _ in found:
        for first in range(len(offsets)):
            for last in range(first, min(first + longest, len(offsets))):
                text = TEXT[offsets[first, 0] : offsets[last, 1]]
                best[text] = max(best.get(text, -np.inf), float(logits[first, 0] + logits[last, 1]))
    return best


@pytest.mark.parametrize("longest", [1, 4, 50])
def test_the_answer_is_the_best_span_of_all_windows(longest):
    for seed in range(20):
        found = windows(np.random.default_rng(seed))
        expected = every_span(found, longest)
        null = min(window.null for window in found)
        best = max(expected, key=expected.get)
        never = answers.predict(found, TEXT, longest, None)
        assert (never["prediction"], never["score"]) == (best, expected[best])
        assert never["null_score_difference"] == null - expected[best]
        wanted = sorted(expected.values(), reverse=True)[: len(never["nbest"])]
        assert [each["score"] for each in never["nbest"]] == wanted
        assert all(TEXT[each["start"] : each["end"]] == each["text"] for each in never["nbest"])
        for threshold in (never["null_score_difference"], never["null_score_difference"] - 1e-6):
            found_one = answers.predict(found, TEXT, longest, threshold)
            exceeds = never["null_score_difference"] > threshold
            assert found_one["prediction"] == ("" if exceeds else best)
        odds = np.exp([each["score"] for each in found_one["nbest"]])
        shares = [each["probability"] for each in found_one["nbest"]]
        np.testing.assert_allclose(shares, odds / odds.sum(), rtol=1e-6)
        assert [each["score"] for each in found_one["nbest"] if not each["text"]] == [null]


def test_spaces_belong_to_no_answer():
    # As SentencePiece has them; the last one is a space.
    offsets = np.array([(0, 2), (2, 6), (6, 7)])
    logits = np.array([(0, 0), (9, 9), (0, 0)], np.float32)
    found = answers.predict([Window(logits, offsets, 0.0)], "He  ran ", 1, None)
    assert found["prediction"] == "ra" and found["nbest"][0]["start"] == 4
    blank = answers.predict([Window(logits[:1], offsets[2:], 3.0)], "      .", 1, None)
    assert blank["prediction"] == "."
    nothing = answers.predict([Window(logits[:1], offsets[:1], 3.0)], "   ", 1, None)
    assert nothing["prediction"] == "" and nothing["null_score_difference"] == 0


def test_the_best_threshold_is_that_of_a_search():
    draw = np.random.default_rng(0)
    for _ in range(50):
        count = int(draw.integers(1, 9))
        correct = [["a b", "b"][: draw.integers(0, 3)] for _ in range(count)]
        nulls = draw.integers(-3, 3, count).astype(float)
        said = draw.choice(["b", "b c", "d"], count)
        found = [
            {"null_score_difference": null, "nbest": [{"text": ""}, {"text": text}]}
            for null, text in zip(nulls, said.tolist(), strict=True)
        ]

        def at(threshold, correct=correct, nulls=nulls, said=said):
            texts = np.where(nulls > threshold, "", said)
            return answer_scores.score(correct, texts.tolist())

        ways = [at(threshold) for threshold in (-9, *range(-3, 3))]
        best = answer_scores.best_scores(correct, found)
        for name in ("exact", "f1"):
            assert best[f"best_{name}"] == pytest.approx(max(way[name] for way in ways))
        assert at(best["best_threshold"])["f1"] == pytest.approx(best["best_f1"])


def spans_batch() -> dict:
    """Returns rows with padding, one of them without weight."""
    batch = small_batch()
    lengths = batch["sequence_ids"].sum(1)
    own = {"start_positions": np.int32(lengths // 3), "end_positions": np.int32(lengths - 1)}
    return batch | own | {"label_weights": np.float32(np.arange(len(lengths)) > 0)}


def test_the_loss_is_the_mean_of_two_cross_entropies_without_padding():
    config, batch = labelled.load("squad", SIZES), spans_batch()
    objective = base.make(config, VOCABULARY)
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    logits = np.asarray(jax.jit(objective.outputs)(params, batch)["label_logits"], np.float64)
    loss = jax.jit(objective.loss, static_argnames="train")
    scalar, metrics = loss(params, batch, objective.weights(batch), 0, train=False)
    nats, hits = [], []
    for row in range(1, len(logits)):
        real = logits[row, batch["sequence_ids"][row] > 0]
        targets = batch["start_positions"][row], batch["end_positions"][row]
        chosen = real[targets, (0, 1)]
        nats.append(np.mean(np.log(np.exp(real).sum(0)) - chosen))
        hits.append((real.argmax(0) == targets).all())
    assert float(scalar) == pytest.approx(np.mean(nats), rel=1e-5)
    assert [float(part) for part in metrics["span_accuracy"]] == [sum(hits), len(hits)]
