"""Nats of whole words: equal to a slow computation, independent of the batch, comparable between vocabularies."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import corpora
from kits.runs import untrained
from kits.texts import PROSE

from bert_jax.convert import load_model
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.inference import batches, fill_mask, table, word_windows
from bert_jax.inference.evaluate_texts import evaluate_models
from bert_jax.tokenizers import tokenizer as tokenizers

TEXTS = [*PROSE, "漢字かな交じり文。I ❤️ it 🙂 very much.", "Ŝi diris: ĝis! 漢字"]
LENGTH = 32


@pytest.fixture(scope="module")
def models():
    kinds = {"wordpiece": 800, "unigram": 230, "byte_bpe": 700}
    trained = [tokenizers.train(kind, TEXTS, size, True) for kind, size in kinds.items()]
    trained.append(tokenizers.train("wordpiece", TEXTS, 700, False))
    return {name: untrained(t) for name, t in zip("abcd", trained, strict=True)}


@pytest.fixture
def measure(tmp_path, monkeypatch, models):
    """measure(names, **other models): the values of `evaluate` for these models on the same text."""
    documents = ["\n".join(TEXTS[n : n + 3]) for n in range(0, len(TEXTS), 3)]
    changes = "corpus.heldout=0.5", f"phases.main.length={LENGTH}", "evaluate.rows=40"
    config = corpora.config_of(tmp_path, documents, *changes)

    def run(names, **others):
        by_name = models | others
        monkeypatch.setattr(load_model, "open_model", lambda name, overrides: by_name[name])
        return evaluate_models(list(names), config, lambda line: None)

    return run


def with_logits(model, function) -> load_model.Model:
    """Returns the model with mlm_logits computed by a function of the batch."""
    outputs = lambda params, batch: {"mlm_logits": function(batch)}  # noqa: E731
    return model._replace(objective=model.objective._replace(outputs=outputs))


@pytest.mark.full
def test_windows_contain_all_text(models):
    """WordPiece splits at punctuation, so it has the same pieces as for the whole text."""
    vocabularies = [model.tokenizer for model in models.values()]
    documents = [TEXTS, ["a" * 500, "the end."], [""], []]
    texts, pieces = {}, {}
    for window in word_windows.windows(documents, vocabularies, LENGTH - 2):
        texts.setdefault(window.document, []).extend(window.parts)
        for number, name in enumerate(models):
            ids = [i for cuts in window.pieces for i in cuts[number]]
            assert len(ids) <= LENGTH - 2
            pieces.setdefault((window.document, name), []).extend(ids)
    assert texts.keys() == {0, 1} and texts[1] == ["the", "end", "."]
    assert "".join(texts[0]) == "".join("".join(TEXTS).split())
    for name in "ad":
        assert pieces[0, name] == models[name].tokenizer.encode([" ".join(TEXTS)])[0]


@pytest.mark.slow
def test_equal_models_have_equal_results(measure):
    values = measure("aba")
    one, other, again = values["models"]
    assert one == again and one["nats_per_word"] != other["nats_per_word"]
    assert [model["model"] for model in values["models"]] == ["a", "b", "a"]
    assert 0 < values["documents"] <= values["windows"] <= 40


@pytest.mark.slow
def test_an_oracle_and_a_uniform_model_have_the_expected_results(measure, models):
    """The uniform model has the logarithm of its vocabulary size in nats for every piece."""
    size = models["c"].vocabulary.size
    oracle = with_logits(models["b"], lambda b: 100 * jax.nn.one_hot(b["masked_targets"], 256))
    blank = with_logits(models["c"], lambda b: jnp.zeros((*b["masked_targets"].shape, size)))
    values = measure("dox", o=oracle, x=blank)
    _, correct, uniform = values["models"]
    assert correct["accuracy"] == 1 and 0 <= correct["nats_per_word"] < 1e-6
    expected = uniform["pieces_per_word"] * math.log(size)
    assert uniform["nats_per_word"] == pytest.approx(expected, rel=1e-6)
    bits = expected * values["words"] / values["characters"] / math.log(2)
    assert uniform["bits_per_character"] == pytest.approx(bits, rel=1e-6)
    assert uniform["accuracy"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", *(pytest.param(x, marks=pytest.mark.full) for x in "bcd")])
def test_nats_equal_a_slow_computation(models, name):
    """One window at a time, at its own length, summed in float64, gives the same as batches of windows."""
    vocabularies = [model.tokenizer for model in models.values()]
    number, model = "abcd".index(name), models[name]
    every = word_windows.windows([TEXTS], vocabularies, LENGTH - 2)
    windows = [window._replace(chosen=[*range(0, len(window.parts), 3)]) for window in every][:3]
    nats, correct, pieces, _ = word_windows.score(model, windows, number)
    expected = []
    for window in windows:
        words = [cuts[number] for cuts in window.pieces]
        targets = [words[index] for index in window.chosen]
        for index in window.chosen:
            words[index] = [model.tokenizer.mask] * len(words[index])
        ids, masks = sum(words, []), sum(map(len, targets))
        batch = batches.make_batch([[model.frame.wrap(ids)]], len(ids) + 2)
        batch = batches.add_masks(batch, model.tokenizer.mask, [[0] * masks])
        logits = np.asarray(model.objective.outputs(model.params, batch)["mlm_logits"][0], float)
        logits = logits[:, : model.vocabulary.size]
        for target in targets:
            rows, logits = np.split(logits, [len(target)])
            cost = np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(target)), target]
            expected.append((cost.sum(), (rows.argmax(axis=1) == target).all(), len(target)))
    slow = np.array(expected)
    np.testing.assert_allclose(nats, slow[:, 0], rtol=1e-5)
    assert (correct == slow[:, 1]).all() and (pieces == slow[:, 2]).all()


@pytest.mark.parametrize("name", "abc")
def test_the_baseline_is_that_of_the_token_frequencies(models, name, monkeypatch):
    """Of each model's own training text; a piece that is not in it counts, too."""

    def measure(model, targets, rows):
        return [(np.zeros(len(ids)), np.ones(1), np.array(ids)[:, None]) for ids in targets]

    monkeypatch.setattr(fill_mask, "measure", measure)
    vocabularies = [models[each].tokenizer for each in "abc"]
    number = "abc".index(name)
    windows, _ = word_windows.choose_words([TEXTS], vocabularies, LENGTH - 2, 0, 9)
    counts = np.arange(vocabularies[number].size) % 7
    model = models[name]._replace(unigrams=counts)
    expected = []
    for window in windows:
        for index in window.chosen:
            ids = window.pieces[index][number]
            shares = [(counts[each] + 1) / (counts + 1).sum() for each in ids]
            expected.append(-math.log(math.prod(shares)))
    found = word_windows.evaluate(model, windows, number, 1)
    assert found["unigram_nats_per_word"] == pytest.approx(np.mean(expected))
    found = word_windows.evaluate(models[name], windows, number, 1)
    assert math.isnan(found["unigram_nats_per_word"])


def test_a_run_keeps_the_counts_of_its_text(finished):
    settings, workdir = finished
    store = stores.open_store(settings["store"])
    counts = np.bincount(store.splits["train"].tokens, minlength=store.manifest["vocabulary"])
    assert (load_model.open_model(workdir).unigrams == counts).all()


@pytest.mark.parametrize("values", [[1.5, math.nan], [math.nan, 1.5], [math.nan] * 2])
def test_a_number_that_is_not_known_is_in_the_table(values):
    lines = table.lines([{"model": "m", "nats": value} for value in values])
    expected = ["1.5000" if value == 1.5 else "unknown" for value in values]
    assert [line.split()[1] for line in lines] == ["nats", *expected]


def test_words_unknown_to_one_model_are_skipped_for_all(models):
    text = "the lazy dog sleeps " * 9 + "ЖжЖ " * 36
    vocabularies = [models[name].tokenizer for name in "ac"]
    windows, unknown = word_windows.choose_words([[text]], vocabularies, 498, seed=0, number=99)
    chosen = {window.parts[index] for window in windows for index in window.chosen}
    assert unknown[0] > 0 == unknown[1] and chosen and "ЖжЖ" not in chosen


def test_only_a_model_of_the_same_store_has_held_out_text(measure, tmp_path, models):
    measure("a")
    own = {"store_fingerprint": stores.open_store(tmp_path / "store").fingerprint}
    infos = {"o": own, "e": {"store_fingerprint": "else"}, "i": own | {"imported": {}}}
    others = {name: models["a"]._replace(info=info) for name, info in infos.items()}
    values = measure("aoei", **others)
    assert [model["held_out"] for model in values["models"]] == [False, True, False, False]


def test_models_that_cannot_fill_in_masks_are_refused(measure, models):
    objective = models["a"].objective._replace(can={})
    headless = models["a"]._replace(step=0, info={"fresh": ["mlm"]})
    with pytest.raises(BadInput, match="n: objective"):
        measure("an", n=models["a"]._replace(objective=objective))
    with pytest.raises(BadInput, match="head 'mlm'"):
        measure("ah", h=headless)
    assert measure("h", h=headless._replace(step=1))["models"]
