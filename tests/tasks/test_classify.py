"""Classification of texts: rows, targets, scores, predictions."""

import numpy as np
import pytest
from kits import labelled
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.data import examples
from bert_jax.data.examples import Example
from bert_jax.errors import BadInput
from bert_jax.objectives import scores
from bert_jax.tasks import base as tasks
from bert_jax.tasks import classify, texts

WORDS = labelled.tokenizer()


def build(directory, parts: dict, length: int = 32, **keys):
    """Returns (config, dataset, store) of examples [(text, ..., label)], built by a small tokenizer."""
    keys = {f"task.{key}": value for key, value in keys.items()}
    keys |= {"store": directory / "store", "task.data": directory, "phases.main.length": length}
    config = configs.load("glue:sst2", overrides(labelled.KEYS | keys))
    made = {
        split: [Example(f"{split}:{n}", list(row[:-1]), row[-1]) for n, row in enumerate(rows, 1)]
        for split, rows in parts.items()
    }
    examples.build(config, WORDS, made, directory / "store")
    store = examples.stores.open_store(directory / "store")
    tasks.fill(config, store)
    return config, tasks.make(config, store), store


def batch(config, dataset, split="train"):
    phase = configs.phases(config)[0]
    rows = dataset.rows(phase, split, 0)
    keys = np.zeros(len(rows), np.uint32)
    return {name: np.asarray(x) for name, x in dataset.make(phase, split, rows, keys).items()}


def test_a_row_has_both_texts_and_the_target(tmp_path):
    pairs = [("the first text", "a second", "yes"), ("more", "", "no"), ("again", "text", "yes")]
    made = build(tmp_path, {"train": pairs, "dev": pairs[:1]}, text="a,b")
    found = batch(*made[:2])
    special = WORDS.special
    for tokens, segments, (a, b, _) in zip(found["tokens"], found["segments"], pairs, strict=True):
        (first, second), unk = WORDS.encode([a, b]), [special["unk"]]
        row = [special["cls"], *first, special["sep"], *(second or unk), special["sep"]]
        assert tokens.tolist() == row + [special["pad"]] * (32 - len(row))
        assert segments.sum() == len(second or unk) + 1
    assert made[0].task.labels == ("no", "yes")
    assert found["targets"].tolist() == [1, 0, 1] and found["label_weights"].all()


@pytest.mark.parametrize("a, b", [(40, 40), (3, 40), (40, 3), (14, 15), (14, 14), (1, 60), (60, 1)])
def test_the_longer_text_is_cut(tmp_path, a, b):
    """As by removing the last token of the longer one until the row has 32 tokens."""
    word = WORDS.encode([labelled.WORDS[0]])[0]
    text = " ".join([labelled.WORDS[0]] * 100)
    ids = WORDS.encode([text])[0]
    assert len(ids) == 100 * len(word)
    part = examples.Encoded([[ids[:a], ids[:b]]], {})
    examples.write(tmp_path / "train", part, WORDS)
    split = examples.stores.open_split(tmp_path / "train", [{"documents": {"train": 1}}])
    while a + b > 29:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    (((_, kept_a, start, kept_b, _),),) = texts.pairs(split, 32)
    assert kept_a + kept_b == a + b and abs(kept_a - a) <= 1
    assert texts.sizes(texts.pairs(split, 32)).tolist() == [a + b + 3]
    assert start == len(ids[: split.sentence_ends[0]])


def test_several_labels_and_numbers(tmp_path):
    rows = [("one", "x,y"), ("two", ["z"]), ("three", "")]
    (tmp_path / "a").mkdir()
    config, dataset, _ = build(
        tmp_path / "a", {"train": rows, "dev": rows}, kind="labels", metrics="micro_f1"
    )
    assert config.task.labels == ("x", "y", "z")
    assert batch(config, dataset)["targets"].tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    logits = np.array([[[2.0, -1, -2]], [[-1.0, -1, 3]], [[-1.0, 1, -1]]], np.float32)
    found = dataset.rows(configs.phases(config)[0], "dev", 0)
    assert dataset.score("dev", {"label_logits": logits}, found) == {
        "micro_f1": pytest.approx(2 / 3)
    }
    decoded = classify.decode(config, None, "dev", {"label_logits": logits}, found)
    assert [each["prediction"] for each in decoded] == [["x"], ["z"], ["y"]]
    assert decoded[0]["probabilities"]["x"] == pytest.approx(1 / (1 + np.exp(-2)))
    (tmp_path / "b").mkdir()
    rows = [("one", "1.5"), ("two", "-2"), ("three", "0")]
    made = build(tmp_path / "b", {"train": rows, "dev": rows}, kind="number", metrics="pearson")
    assert batch(*made[:2])["targets"].tolist() == [1.5, -2, 0]
    with pytest.raises(BadInput, match="train:1: label 'many'"):
        classify.encode(made[0], WORDS, [Example("train:1", ["x"], "many")], [])


def test_scores_equal_their_formulas():
    draw = np.random.default_rng(0)
    true, said = draw.integers(0, 2, (2, 50))
    hits = (true & said).sum()
    f1 = 2 * hits / (true.sum() + said.sum())
    matthews = np.corrcoef(true, said)[0, 1]
    found = scores.compute(("accuracy", "f1", "matthews"), true, said)
    assert found == pytest.approx(
        {"accuracy": (true == said).mean(), "f1": f1, "matthews": matthews}
    )
    a, b = draw.normal(size=(2, 50))
    ranks = [np.argsort(np.argsort(x)) for x in (a, b)]
    expected = {"pearson": np.corrcoef(a, b)[0, 1], "spearman": np.corrcoef(*ranks)[0, 1]}
    assert scores.compute(("pearson", "spearman"), a, b) == pytest.approx(expected)


def test_a_share_is_held_out_for_every_example_once(tmp_path):
    found = [Example(str(n), ["x"], "y") for n in range(97)]
    parts = examples.split_off(found, 0.2)
    assert len(parts["dev"]) == 19 and sorted(parts["dev"] + parts["train"]) == sorted(found)
    assert parts == examples.split_off(found, 0.2)
