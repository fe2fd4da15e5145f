"""Files of predictions: tables, lines of words, and texts that are longer than a row."""

import csv
import json
import math
import random

import numpy as np
import pytest
from kits import labelled

from bert_jax.inference import predict
from bert_jax.runs.open_run import OpenModel
from bert_jax.tasks.supervised import predictions
from bert_jax.tasks.supervised.examples import Example
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import Vocabulary

model = labelled.model
NAMES = ("a, b", "te\tx\nt", 'c"')


def rows_of(results, suffix: str, mark=",") -> list[list[str]]:
    return [
        *csv.reader(predictions.text(results, suffix).splitlines(keepends=True), delimiter=mark)
    ]


@pytest.mark.parametrize("kind", ["classes", "labels", "number"])
def test_a_table_has_a_column_for_each_class(kind):
    draw = random.Random(0)
    logits = [[[draw.gauss(0, 2) for _ in NAMES]] for _ in range(4)]
    logits = logits if kind != "number" else [[row[0][:1]] for row in logits]
    results = predictions.describe(kind, np.array(logits, np.float32), NAMES)
    results = [{"text": f'"a",\n{n}'} | result for n, result in enumerate(results)]
    header, *rows = rows_of(results, ".csv")
    assert header == ["text", "prediction", *(NAMES if kind != "number" else ())]
    for row, result in zip(rows, results, strict=True):
        assert row[0] == result["text"]
        prediction = result["prediction"]
        assert row[1] == (",".join(prediction) if kind == "labels" else str(prediction))
        assert [*map(float, row[2:])] == [*result.get("probabilities", {}).values()]


def test_a_table_of_answers_has_their_scores():
    results = [
        {"id": f"q{n}", "text": "q | c", "prediction": "x,y", "score": n / 7} for n in range(3)
    ]
    header, *rows = rows_of(results, ".csv")
    assert header == ["id", "prediction", "score"]
    assert [(row[0], float(row[2])) for row in rows] == [(f"q{n}", n / 7) for n in range(3)]
    assert f"{results[2]['score']:.3f}" in predictions.with_text(results[2])


@pytest.mark.parametrize("suffix, mark", [("", " "), (".txt", " "), (".tsv", "\t"), (".csv", ",")])
def test_the_labels_of_a_word_are_a_line(suffix, mark):
    sentences = [[("a", "O", "B-x"), ("|", "B-x", "O")], [("b", "I-x", "O")]]
    results = [
        {"words": words, "prediction": [label for *_, label in words]} for words in sentences
    ]
    lines = predictions.text(results, suffix).splitlines()
    first, second = ([*map(mark.join, words)] for words in sentences)
    assert lines == [*first, "", *second, ""]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_json_has_null_for_numbers_that_are_not_finite(suffix):
    """They are those of a model that diverged."""
    results = [{"prediction": number, "score": [number]} for number in (math.nan, -math.inf, 0.5)]
    text = predictions.text(results, suffix)
    rows = [*map(json.loads, text.splitlines())]
    if suffix == ".json":
        assert rows == [{"0": None, "1": None, "2": 0.5}]
    else:
        assert rows == [{"prediction": n, "score": [n]} for n in (None, None, 0.5)]


def open_untrained(config) -> OpenModel:
    """Returns a model with random parameters for the examples of a config."""
    config, store, dataset, phase = labelled.resolve(config)
    _, batch = labelled.batch_of(dataset, phase)
    objective, params = labelled.random_params(config, store, batch)
    words = tokenizers.load(store.path / "tokenizer")
    vocabulary = Vocabulary(words.size, **words.special)
    return OpenModel(config, {}, vocabulary, words, objective, 1, params)


@pytest.mark.slow
def test_texts_that_are_cut_are_counted(model, tmp_path, capsys):
    """Each text of a pair by itself; no word of a sentence is left out."""
    settings = labelled.places(model, labelled.sentences(tmp_path / "data", 20, 20))
    opened = open_untrained(labelled.load("glue:sst2", settings, **{"task.text": "sentence,label"}))
    capsys.readouterr()
    long = " ".join(labelled.WORDS[:60])
    pairs = [["a", "b"], [long, "b"], ["a", long], [long, long]]
    results, _ = predict.predict_examples(opened, [Example("", pair, None) for pair in pairs])
    (line,) = capsys.readouterr().err.splitlines()
    assert "phases.main.length=32" in line and "4 of 8" in line and len(results) == 4


@pytest.mark.slow
def test_every_word_of_a_long_sentence_has_a_label_of_the_model(model, tmp_path, capsys):
    for name in ("train", "dev"):
        labelled.write_entities(tmp_path / f"{name}.txt", 9, 0)
    opened = open_untrained(labelled.load("ner", labelled.places(model, tmp_path)))
    names = [*opened.config.task.labels]
    # An output for which no word is outside.
    params = opened.params
    bias = params["label"]["bias"]
    params["label"]["bias"] = bias.at[names.index("O")].set(-1e6)
    words = [*labelled.WORDS[:20]] * 9
    capsys.readouterr()
    (result,), _ = predict.predict_examples(opened, [Example("", words, None)])
    assert len(result["prediction"]) == len(words) and "O" not in result["prediction"]
    assert result["words"] == [*zip(words, result["prediction"], strict=True)]
    assert not capsys.readouterr().err
    gold = [Example("", [word], "O") for word in words]
    inputs = [Example("", words, gold), Example("", words[:1], gold[:1])]
    (_, result), scores = predict.predict_examples(opened, inputs)
    assert result["words"] == [(words[0], "O", *result["prediction"])] and scores["examples"] == 2
    (_, result), _ = predict.predict_examples(opened, [inputs[0], inputs[1]._replace(label=None)])
    assert result["words"] == [(words[0], *result["prediction"])]
