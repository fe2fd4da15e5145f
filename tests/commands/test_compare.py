"""`compare` finds and names the differences of two models, NaN and infinity included."""

import jax
import numpy as np
import pytest
from kits.malformed_inputs import leaf
from kits.runs import untrained
from kits.texts import PROSE

from bert_jax.commands import compare
from bert_jax.convert import load_model
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.wordpiece import WordPiece

WORDS = "encoder/embedder/words"


def make_model(size: int, *changes) -> load_model.Model:
    return untrained(tokenizers.train("wordpiece", PROSE, size, True), *changes)


@pytest.fixture(scope="module")
def model():
    return make_model(300)


@pytest.fixture
def compared(monkeypatch):
    """compared(a, b): the values of `compare` for two models, which can also be formatted."""

    def run(a, b):
        models = {"a": a, "b": b}
        monkeypatch.setattr(load_model, "open_model", lambda name, overrides: models[name])
        values = compare.compare("a", "b")
        assert compare.describe(values)
        return values

    return run


def changed(model, path: str, at, by) -> load_model.Model:
    """The model with `by` added to one element of a parameter."""
    params = jax.tree.map(np.array, model.params)
    leaf(params, path)[at] += by
    return model._replace(params=params)


def bitwise(values) -> int:
    return sum(entry["bitwise"] for entry in values["tensors"])


def test_equal_models_have_no_differences(compared, model):
    values = compared(model, model)
    assert bitwise(values) == len(values["tensors"]) == len(jax.tree.leaves(model.params))
    assert all(entry["difference"] == 0 for entry in values["outputs"].values())
    assert set(values["outputs"]) == {"mlm_logits", "pair_logits"}
    assert values["vocabulary"]["pieces"] == 0 and values["vocabulary"]["same_rules"]
    assert (values["a"], values["b"]) == ("a", "b")
    assert not (values["settings"] or values["shapes"])


@pytest.mark.parametrize(
    "path, at, by", [("mlm/dense/kernel", (3, 5), 0.5), ("mlm/norm/scale", 0, np.float32(2**-23))]
)
def test_a_difference_in_one_element_is_found(compared, model, path, at, by):
    values = compared(model, changed(model, path, at, by))
    first, second = values["tensors"][:2]
    assert first["tensor"] == path and not first["bitwise"]
    assert first["difference"] == pytest.approx(by) and second["difference"] == 0
    assert bitwise(values) == len(values["tensors"]) - 1
    assert values["outputs"]["pair_logits"]["difference"] == 0
    assert path in compare.describe(values)
    if by == 0.5:
        assert values["outputs"]["mlm_logits"]["difference"] > 0


def test_vocabulary_padding_is_not_compared(compared, model):
    row = model.vocabulary.size
    assert model.params["encoder"]["embedder"]["words"].shape[0] > row
    values = compared(model, changed(model, WORDS, at=(row, 0), by=1.0))
    assert bitwise(values) == len(values["tensors"])
    values = compared(model, changed(model, WORDS, at=(row - 1, 0), by=1.0))
    assert values["tensors"][0]["tensor"] == WORDS


def test_the_bias_of_a_causal_head_is_compared_without_padding(compared):
    causal = make_model(300, "objective.name=causal_lm", "task.name=token_blocks")
    padded = changed(causal, "lm/bias", at=-1, by=1.0)
    values = compared(causal, padded)
    assert bitwise(values) == len(values["tensors"]) and set(values["outputs"]) == {"lm_logits"}


def test_different_layers_and_settings_are_reported(compared, model):
    """Two spellings of one value are no difference: feed_forward 0 is four times the width."""
    changes = "model.layers=3", "task.pair_task=none", "model.feed_forward=128"
    values = compared(model, make_model(300, *changes))
    assert values["settings"] == {"model.layers": (2, 3), "task.pair_task": ("nsp", "none")}
    only_b = {name.split("/")[1] for name, pair in values["shapes"].items() if pair[0] is None}
    assert only_b == {"blocks_2"} and values["shapes"]["pair/kernel"] == [(32, 2), None]
    assert set(values["outputs"]) == {"mlm_logits"}


def test_outputs_of_different_shapes_are_not_compared(compared):
    keys = "task.name=classification", "objective.name=classifier"
    one, two = (make_model(300, *keys, f"task.labels={labels}") for labels in ("a,b", "a,b,c"))
    values = compared(one, two)
    assert values["shapes"]["label/bias"] == [(2,), (3,)] and values["outputs"] == {}


def test_different_vocabularies_are_reported(compared, model):
    """Outputs are not compared, because the same ids are different texts."""
    other = make_model(310)
    pieces = [*other.tokenizer.pieces[:5], *reversed(other.tokenizer.pieces[5:])]
    other = other._replace(tokenizer=WordPiece(pieces, lowercase=True))
    values = compared(model, other)
    sizes = [model.vocabulary.size, 310]
    assert values["vocabulary"]["sizes"] == sizes and values["vocabulary"]["pieces"] >= 10
    assert values["shapes"][WORDS] == [(sizes[0], 32), (sizes[1], 32)]
    assert values["outputs"] == {}


def test_nan_is_reported(compared, model):
    """NaN in both models is no difference."""
    path = "encoder/blocks_0/feed_forward/up/bias"
    broken = changed(model, path, at=1, by=np.nan)
    entry = compared(model, broken)["tensors"][0]
    assert entry["tensor"] == path and entry["difference"] == np.inf
    values = compared(broken, broken)
    assert bitwise(values) == len(values["tensors"])


def test_untrained_heads_are_skipped(compared, model):
    values = compared(model, model._replace(step=0, info={"fresh": ["pooler", "pair"]}))
    assert {"pair/bias", "encoder/pooler/kernel"} <= {
        name for name, pair in values["shapes"].items() if pair[1] is None
    }
    assert set(values["outputs"]) == {"mlm_logits"}
