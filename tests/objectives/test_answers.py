"""Answers from logits, against a search of all spans and thresholds; the loss of spans, and transformers' logits."""

from functools import partial

import jax
import numpy as np
import pytest
from kits.malformed_inputs import open_directory
from kits.runs import load
from kits.small import SMALL, VOCABULARY, small_batch, synthetic

from bert_jax.convert import settings
from bert_jax.objectives import answer_scores, answers, base
from bert_jax.objectives.windows import Window
from bert_jax.tokenizers.special_tokens import SPECIAL

KEYS = {key: value for key, value in SMALL.items() if not key.endswith("max_predictions")}
KEYS |= {"objective.name": "spans", "task.name": "squad", "task.question_length": 8}
WORDS = [f"word{number}" for number in range(30)]
TEXT = " ".join(WORDS)
OFFSETS = np.array(
    [(TEXT.index(f"{word} "), TEXT.index(f"{word} ") + len(word)) for word in WORDS[:-1]]
)


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
    offsets = np.array(
        [(0, 2), (2, 6), (6, 7)]
    )  # as SentencePiece has them; the last one is a space
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
        found = [
            {
                "null_score_difference": float(draw.integers(-3, 3)),
                "nbest": [{"text": ""}, {"text": str(draw.choice(["b", "b c", "d"]))}],
            }
            for _ in range(count)
        ]

        def at(threshold, correct=correct, found=found):
            texts = [
                "" if each["null_score_difference"] > threshold else each["nbest"][1]["text"]
                for each in found
            ]
            return answer_scores.score(correct, texts)

        ways = [at(threshold) for threshold in (-9, *range(-3, 3))]
        best = answer_scores.best_scores(correct, found)
        for name in ("exact", "f1"):
            assert best[f"best_{name}"] == pytest.approx(max(way[name] for way in ways))
        assert at(best["best_threshold"])["f1"] == pytest.approx(best["best_f1"])


def spans_batch() -> dict:
    """Returns rows with padding, one of them without weight."""
    batch = small_batch()
    lengths = batch["sequence_ids"].sum(1)
    own = {"start_positions": lengths // 3, "end_positions": lengths - 1}
    weights = np.float32(np.arange(len(lengths)) > 0)
    return (
        batch
        | {name: each.astype(np.int32) for name, each in own.items()}
        | {"label_weights": weights}
    )


@partial(jax.jit, static_argnums=0)
def loss(objective, params, batch):
    return objective.loss(params, batch, objective.weights(batch), 0, train=False)


def test_the_loss_is_the_mean_of_two_cross_entropies_without_padding():
    objective, batch = base.make(load(KEYS), VOCABULARY), spans_batch()
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    logits = np.asarray(jax.jit(objective.outputs)(params, batch)["label_logits"], np.float64)
    scalar, metrics = loss(objective, params, batch)
    nats, hits = [], []
    for row in range(1, len(logits)):
        real = logits[row, batch["sequence_ids"][row] > 0]
        targets = batch["start_positions"][row], batch["end_positions"][row]
        chosen = real[targets, (0, 1)]
        nats.append(np.mean(np.log(np.exp(real).sum(0)) - chosen))
        hits.append((real.argmax(0) == targets).all())
    assert float(scalar) == pytest.approx(np.mean(nats), rel=1e-5)
    assert [float(part) for part in metrics["span_accuracy"]] == [sum(hits), len(hits)]


@pytest.mark.full
def test_logits_and_loss_equal_those_of_transformers(tmp_path):
    """The loss on rows without padding, which theirs does not mask."""
    torch = pytest.importorskip("torch")
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    theirs = BertForQuestionAnswering(BertConfig(vocab_size=VOCABULARY.size, **sizes)).eval()
    theirs.bert.save_pretrained(tmp_path)
    pieces = [*SPECIAL.values(), *map(str, range(VOCABULARY.size - len(SPECIAL)))]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    model = settings.from_huggingface(theirs.config.to_dict(), "config.json")
    keys = KEYS | {f"model.{key}": value for key, value in model.items()}
    objective = base.make(load(keys), VOCABULARY)
    weight, bias = (each.detach().numpy() for each in theirs.qa_outputs.parameters())
    params = {"encoder": open_directory(tmp_path).params["encoder"]}
    params["label"] = {"kernel": weight.T, "bias": bias}
    padded = spans_batch()
    whole = padded | synthetic(16, 32, 1, VOCABULARY.size)
    for batch in (padded, whole):
        named = dict(input_ids="tokens", token_type_ids="segments", attention_mask="sequence_ids")
        named |= dict(start_positions="start_positions", end_positions="end_positions")
        inputs = {name: torch.tensor(batch[ours]).long() for name, ours in named.items()}
        with torch.no_grad():
            expected = theirs(**inputs)
        real = batch["sequence_ids"] > 0
        logits = np.stack([expected.start_logits.numpy(), expected.end_logits.numpy()], axis=-1)
        ours = np.asarray(jax.jit(objective.outputs)(params, batch)["label_logits"])
        np.testing.assert_allclose(ours[real], logits[real], atol=1e-5)
    whole["label_weights"] = np.ones(16, np.float32)
    assert float(loss(objective, params, whole)[0]) == pytest.approx(expected.loss.item(), rel=1e-5)
