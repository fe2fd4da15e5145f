"""What differs between two models is found and named, and nothing that is not finite is hidden."""

import jax
import numpy as np
import pytest
from kits.small import small_batch, small_config
from kits.texts import PROSE

from bert_jax.commands import compare, load_model
from bert_jax.objectives import base
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special import Vocabulary
from bert_jax.tokenizers.tokenizer import Tokenizer
from bert_jax.tokenizers.wordpiece import WordPiece

WORDS = "encoder/embedder/words"


def make_model(size: int = 300, *changes) -> load_model.Trained:
    tokenizer = tokenizers.train("wordpiece", PROSE, size, True)
    config = small_config(*changes)
    vocabulary = Vocabulary(tokenizer.size, **tokenizer.special)
    objective = base.make(config, vocabulary)
    params = jax.device_get(jax.jit(objective.init)(jax.random.key(0), small_batch()))
    return load_model.Trained(config, {}, vocabulary, tokenizer, objective, 1, params)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture
def compared(monkeypatch):
    """compared(a, b) -> what compare says of two models; that it can be told, too."""

    def run(a, b):
        known = {"a": a, "b": b}
        monkeypatch.setattr(load_model, "open_model", lambda name, overrides: known[name])
        values = compare.compare("a", "b")
        assert compare.describe(values)
        return values

    return run


def changed(model, *path, at, by) -> load_model.Trained:
    """The model with `by` added to one element of a parameter."""
    params = jax.tree.map(np.array, model.params)
    leaf = params
    for key in path:
        leaf = leaf[key]
    leaf[at] += by
    return model._replace(params=params)


def test_equal_models(compared, model):
    values = compared(model, model)
    assert values["bitwise"] == len(values["tensors"]) == len(jax.tree.leaves(model.params))
    assert all(entry["difference"] == 0 for entry in values["tensors"])
    assert all(entry["difference"] == 0 for entry in values["outputs"].values())
    assert set(values["outputs"]) == {"mlm_logits", "pair_logits"}
    assert values["outputs"]["mlm_logits"]["same_best"] == 1
    assert values["vocabulary"]["pieces"] == 0 and values["vocabulary"]["same_rules"]
    assert not (values["settings"] or values["shapes"] or values["only_a"] or values["only_b"])


def test_one_element_is_found(compared, model):
    other = changed(model, "mlm", "dense", "kernel", at=(3, 5), by=0.5)
    values = compared(model, other)
    first, second = values["tensors"][:2]
    assert first["tensor"] == "mlm/dense/kernel" and not first["bitwise"]
    assert first["difference"] == pytest.approx(0.5) and second["difference"] == 0
    assert values["bitwise"] == len(values["tensors"]) - 1
    assert values["outputs"]["mlm_logits"]["difference"] > 0
    assert values["outputs"]["pair_logits"]["difference"] == 0
    assert "0.5  mlm/dense/kernel" in compare.describe(values)


def test_a_smallest_difference_is_not_bitwise(compared, model):
    other = changed(model, "mlm", "norm", "scale", at=0, by=np.float32(2**-23))
    entry = compared(model, other)["tensors"][0]
    assert entry == {
        "tensor": "mlm/norm/scale",
        "difference": 2**-23,
        "bitwise": False,
        "not_finite": [0, 0],
    }


def test_padding_is_not_compared(compared, model):
    row = model.vocabulary.size
    assert model.params["encoder"]["embedder"]["words"].shape[0] > row
    values = compared(model, changed(model, *WORDS.split("/"), at=(row, 0), by=1.0))
    assert values["bitwise"] == len(values["tensors"])
    values = compared(model, changed(model, *WORDS.split("/"), at=(row - 1, 0), by=1.0))
    assert values["tensors"][0]["tensor"] == WORDS


def test_layers_and_settings_that_differ(compared, model):
    values = compared(model, make_model(300, "model.layers=3", "objective.pairs=none"))
    assert values["settings"] == {"model.layers": [2, 3], "objective.pairs": ["nsp", "none"]}
    assert values["only_b"] and all(
        name.startswith("encoder/blocks_2/") for name in values["only_b"]
    )
    shown = compare.describe(values)
    assert shown.count(": only in b") == compare.SHOWN and "and 6 more tensors" in shown
    assert "pair/kernel" in values["only_a"] and set(values["outputs"]) == {"mlm_logits"}


def test_one_width_in_two_spellings(compared, model):
    """0 stands for four times the width."""
    assert compared(model, make_model(300, "model.feed_forward=128"))["settings"] == {}


def test_vocabularies_that_differ(compared, model):
    """A longer one whose ids mean something else: a batch would be two texts."""
    other = make_model(310)
    pieces = [*other.tokenizer.pieces[:5], *reversed(other.tokenizer.pieces[5:])]
    other = other._replace(tokenizer=Tokenizer(WordPiece(pieces, lowercase=True)))
    values = compared(model, other)
    sizes = [model.vocabulary.size, 310]
    assert values["vocabulary"]["sizes"] == sizes and values["vocabulary"]["pieces"] >= 10
    assert values["shapes"][WORDS] == [[sizes[0], 32], [sizes[1], 32]]
    assert values["outputs"] == {}


def test_a_vocabulary_that_goes_on(compared, model, tmp_path):
    """As --add-words leaves it: outputs are compared over the pieces of the shorter one."""
    tokenizer = model.tokenizer
    longer = Tokenizer(WordPiece([*tokenizer.pieces, "newword"], tokenizer.model.lowercase))
    vocabulary = model.vocabulary._replace(size=longer.size)
    values = compared(model, model._replace(tokenizer=longer, vocabulary=vocabulary))
    assert values["vocabulary"]["pieces"] == 1
    assert set(values["outputs"]) == {"mlm_logits", "pair_logits"}
    assert all(entry["difference"] == 0 for entry in values["outputs"].values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told(compared, model, value):
    place = "encoder", "blocks_0", "feed_forward", "up", "bias"
    broken = changed(model, *place, at=1, by=value)
    values = compared(model, broken)
    entry = values["tensors"][0]
    assert entry["tensor"] == "/".join(place) and entry["difference"] == np.inf
    assert entry["not_finite"] == [0, 1]
    assert "NaN or infinite: 0 in a, 1 in b" in compare.describe(values)
    # In both alike: no difference, and not kept quiet either.
    values = compared(broken, broken)
    entry = next(entry for entry in values["tensors"] if entry["not_finite"] == [1, 1])
    assert entry["difference"] == 0 and entry["bitwise"]
    assert f"NaN or infinite: 1 in a, 1 in b)  {'/'.join(place)}" in compare.describe(values)


def test_differences_of_elements():
    a = np.array([0.0, np.nan, np.inf, np.inf, 1.0], np.float32)
    assert compare.difference(a, a)["difference"] == 0
    for place, other in ((1, 0), (2, -np.inf), (3, 5), (4, np.nan)):
        b = a.copy()
        b[place] = other
        assert compare.difference(a, b)["difference"] == np.inf
    zero = compare.difference(np.array([0.0]), np.array([-0.0]))
    assert zero["difference"] == 0 and not zero["bitwise"]


def test_parts_that_only_init_has_made(compared, model):
    """Heads that a source lacks are random: they are no part of it."""
    bare = model._replace(step=0, facts={"fresh": ["pooler", "pair"]})
    values = compared(model, bare)
    assert "pair/bias" in values["only_a"] and "encoder/pooler/kernel" in values["only_a"]
    assert set(values["outputs"]) == {"mlm_logits"}


def test_the_batch_has_padding_segments_and_masks(model):
    batch = compare.make_batch(model, model, model.vocabulary.size)
    real = batch["sequence_ids"] > 0
    assert real.any(axis=1).all() and real[0].all() and not real[-1].all()
    assert (batch["tokens"][~real] == model.vocabulary.pad).all() and batch["segments"].any()
    used = batch["masked_weights"] > 0
    places = np.take_along_axis(batch["tokens"], batch["masked_positions"], axis=1)
    assert used.any(axis=1).all() and (places[used] == model.vocabulary.mask).all()
    assert (places[~used] == model.vocabulary.cls).all()
