"""Nats of whole words: equal to a slow count, the same in any batch, comparable between vocabularies."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import corpora
from kits.runs import untrained
from kits.small import small_batch
from kits.texts import PROSE

from bert_jax.commands import evaluate_models, load_model, words
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

TEXTS = [*PROSE, "漢字かな交じり文。I ❤️ it 🙂 very much.", "Ŝi diris: ĝis! 漢字"]
LENGTH = 32


@pytest.fixture(scope="module")
def models():
    kinds = {"wordpiece": 800, "unigram": 230, "byte_bpe": 700}
    made = [tokenizers.train(kind, TEXTS, size, True) for kind, size in kinds.items()]
    made.append(tokenizers.train("wordpiece", TEXTS, 700, False))
    return {name: untrained(t) for name, t in zip("abcd", made, strict=True)}


@pytest.fixture
def measure(tmp_path, monkeypatch, models):
    """measure(names, models of other names...) -> what evaluate says of them on the same text."""
    documents = ["\n".join(TEXTS[n : n + 3]) for n in range(0, len(TEXTS), 3)]
    changes = "corpus.heldout=0.5", f"phases.main.length={LENGTH}", "evaluate.rows=40"
    config = corpora.config_of(tmp_path, documents, *changes)

    def run(names, **others):
        known = models | others
        monkeypatch.setattr(load_model, "open_model", lambda name, overrides: known[name])
        return evaluate_models.evaluate(list(names), config, lambda line: None)

    return run


def with_logits(model, function) -> load_model.Trained:
    """The model with the mlm_logits that a function makes of a batch."""
    objective = model.objective._replace(
        outputs=lambda params, batch: {"mlm_logits": function(batch)}
    )
    return model._replace(objective=objective)


def windows_of(models, length: int = LENGTH) -> list[words.Window]:
    vocabularies = [model.tokenizer for model in models.values()]
    found = words.windows([TEXTS], vocabularies, length - 2, seed=0)
    return [window for window in found if len(window.words)]


def test_equal_models_are_equal(measure):
    values = measure("aba")
    one, other, again = values["models"]
    assert one == again and one["nats_per_word"] != other["nats_per_word"]
    assert [model["model"] for model in values["models"]] == ["a", "b", "a"]
    assert 0 < values["documents"] <= values["windows"] <= 40
    assert 0 < values["word_entropy"] <= math.log(values["words"])


def test_a_model_that_knows_is_right(measure, models):
    """And one that knows nothing pays the logarithm of its vocabulary for every piece."""
    size = models["c"].vocabulary.size
    oracle = with_logits(models["b"], lambda b: 100 * jax.nn.one_hot(b["masked_targets"], 256))
    blank = with_logits(models["c"], lambda b: jnp.zeros((*b["masked_targets"].shape, size)))
    values = measure("dox", o=oracle, x=blank)
    _, right, ignorant = values["models"]
    assert right["accuracy"] == 1 and 0 <= right["nats_per_word"] < 1e-6
    expected = ignorant["pieces_per_word"] * math.log(size)
    assert ignorant["nats_per_word"] == pytest.approx(expected, rel=1e-6)
    bits = expected * values["words"] / values["characters"] / math.log(2)
    assert ignorant["bits_per_character"] == pytest.approx(bits, rel=1e-6)
    assert ignorant["accuracy"] == 0 and ignorant["unknown"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", "abcd")
def test_nats_of_a_slow_count(models, name):
    """A window at a time, at its own length, summed in float64, beside batches of two windows."""
    every, number, model = windows_of(models), "abcd".index(name), models[name]
    windows = [every[0], every[len(every) // 2], every[-1]]
    nats, right, pieces = evaluate_models.score(model, windows, number, LENGTH, 2)
    expected = []
    for window in windows:
        cut, special = window.pieces[number], model.tokenizer
        tokens = np.array([special.cls, *cut.ids, special.sep])
        masked, targets = [], []
        for start, end in window.words:
            own = [n for n, (a, b) in enumerate(cut.spans, 1) if a < b and start <= a and b <= end]
            masked.append(own)
            targets.append(tokens[own].copy())
            tokens[own] = special.mask
        places, size = np.concatenate(masked), len(tokens)
        batch = small_batch(1, size, 1) | {
            "tokens": tokens[None].astype(np.int32),
            "segments": np.zeros((1, size), np.int32),
            "positions": np.arange(size, dtype=np.int32)[None],
            "sequence_ids": np.ones((1, size), np.int32),
            "masked_positions": places[None].astype(np.int32),
        }
        logits = np.asarray(model.objective.outputs(model.params, batch)["mlm_logits"][0], float)
        logits = logits[:, : model.vocabulary.size]
        for own, target in zip(masked, targets, strict=True):
            mine = logits[[list(places).index(place) for place in own]]
            cost = np.log(np.exp(mine).sum(axis=1)) - mine[np.arange(len(own)), target]
            expected.append((cost.sum(), (mine.argmax(axis=1) == target).all(), len(own)))
    slow = np.array(expected)
    np.testing.assert_allclose(nats, slow[:, 0], rtol=1e-5)
    assert (right == slow[:, 1]).all() and (pieces == slow[:, 2]).all()


def test_whether_the_text_is_new_to_a_model(measure, tmp_path, models):
    measure("a")
    own = {"store_fingerprint": stores.open_store(tmp_path / "store").fingerprint}
    facts = {"o": own, "e": {"store_fingerprint": "else"}, "i": own | {"imported": {}}}
    others = {name: models["a"]._replace(facts=known) for name, known in facts.items()}
    values = measure("aoei", **others)
    assert [model["held_out"] for model in values["models"]] == [False, True, False, False]


def test_models_that_predict_no_words(measure, models):
    outputs = models["a"].objective._replace(outputs=lambda params, batch: {"pair_logits": 0})
    headless = models["a"]._replace(step=0, facts={"fresh": ["mlm"]})
    with pytest.raises(BadInput, match="mlm_logits"):
        measure("an", n=models["a"]._replace(objective=outputs))
    with pytest.raises(BadInput, match="masked-LM head"):
        measure("ah", h=headless)
    assert measure("h", h=headless._replace(step=1))["models"]
