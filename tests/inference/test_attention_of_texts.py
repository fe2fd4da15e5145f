"""The attention in a text: its probabilities, words, predictions at masks, and alignment; and what is refused."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from kits.runs import SIZES, untrained
from kits.small import MODERN
from kits.texts import PROSE
from pages.test_attention_page import data_of, weights_of

from bert_jax.errors import BadInput
from bert_jax.inference import attention, fill_mask, predict
from bert_jax.pages import attention as page
from bert_jax.tokenizers import tokenizer as tokenizers

TEXT = "the quick brown fox jumps"
KEYS = {
    "bert": ["task.pair_task=none"],
    "modernbert": [*MODERN, "task.pair_task=none"],
    "gpt": ["model.name=gpt", "objective.name=causal_lm", "task.name=token_blocks"],
    "transformer": [
        "model.name=transformer",
        "objective.name=translation",
        "task.name=translation",
        "task.max_pieces=20",
        "task.extra_pieces=5",
        "model.layers=2",
        "model.decoder_layers=3",
    ],
}


@pytest.fixture(scope="module")
def words():
    """A tokenizer."""
    return tokenizers.train("wordpiece", PROSE, SIZES["wordpiece"], True)


@pytest.fixture(scope="module")
def models(words):
    """{name: a model with random parameters}, in which probabilities are far from uniform."""
    return {name: untrained(words, "model.initializer=0.3", *keys) for name, keys in KEYS.items()}


def compute(models, name: str, *texts: str) -> attention.AttentionWeights:
    return attention.compute(models[name], name, [*texts])


@pytest.mark.parametrize("name", KEYS)
def test_a_token_reads_the_tokens_of_its_text_alone(models, name):
    """Of all maps, the rows sum to 1, later tokens are not read where there are none, and the page has the numbers."""
    result = compute(models, name, TEXT)
    expected = ["text"]
    if name == "transformer":
        expected += ["translation", "cross"]
    assert [each.name for each in result.maps] == expected
    data = data_of(page.page(result))
    model = models[name].config.model
    for number, each in enumerate(result.maps):
        layers = model.layers if each.name == "text" else model.decoder_layers
        shape = layers, model.heads, len(each.queries.pieces), len(each.keys.pieces)
        assert each.weights.shape == shape
        np.testing.assert_allclose(each.weights.sum(axis=-1), 1, atol=1e-5)
        is_causal = not np.triu(each.weights, 1).any()
        assert is_causal == (name == "gpt" or each.name == "translation")
        assert each.weights.max(axis=-1).mean() > 0.25
        np.testing.assert_allclose(
            weights_of(data[number]), np.concatenate(each.weights), atol=0.00051
        )
    first = {"gpt": "[SEP]", "transformer": "the"}
    assert result.tokens[0] == first.get(name, "[CLS]")
    tokens, weights = result
    assert tokens == result.maps[0].keys.pieces and weights is result.maps[0].weights


def test_a_pair_is_one_row(models):
    result = compute(models, "bert", TEXT, "a dog")
    tokens = result.maps[0].queries
    assert tokens.pieces.count("[SEP]") == 2 and tokens.pieces[-1] == "[SEP]"
    assert sum(tokens.is_special) == 3


def test_masks_are_those_of_predict(models):
    text = "the [MASK] fox [MASK]"
    result = compute(models, "bert", text)
    [expected] = fill_mask.candidates(models["bert"], [text], attention.TOP, ["a text"])
    assert len(expected) == result.tokens.count("[MASK]") == 2
    for ours, pieces in zip(result.masks, expected, strict=True):
        assert [each["piece"] for each in ours] == [each["piece"] for each in pieces]
    assert expected[0][0]["piece"] in page.page(result)
    assert not compute(models, "bert", TEXT).masks


def test_a_translation_is_the_models_or_a_given_one(models):
    model = models["transformer"]
    [found], _ = predict.predict_examples(model, predict.read_examples(model, [TEXT]))
    result = compute(models, "transformer", TEXT)
    _, target, cross = result.maps
    assert cross.queries == target.queries and cross.keys == result.maps[0].keys
    begin, *ids = attention.read_target(model, attention.read_row(model, [TEXT]), [])
    assert begin == model.vocabulary.cls and model.tokenizer.decode(ids) == found["prediction"]
    assert target.queries.pieces[1:] == [*map(model.tokenizer.readable, ids)]
    other = compute(models, "transformer", TEXT, "a lazy dog").maps[2]
    assert "".join(other.queries.texts[1:]) == "alazydog"
    assert not other.keys.is_special[0] and other.keys.is_special[-1]


def test_layers_are_in_their_order():
    """Also blocks that are called several times, and those of a decoder."""
    encoder = [f"network/blocks_{number}/attention/probabilities/[0]" for number in range(12)]
    shared = [f"network/block/attention/probabilities/[{number}]" for number in range(12)]
    assert attention.find_layers({*encoder}) == {"text": encoder}
    assert attention.find_layers({*shared}) == {"text": shared}
    block = "network/decoder/blocks_0"
    parts = [f"{block}/attention/probabilities/[0]", f"{block}/context/probabilities/[0]"]
    expected = {"text": encoder, "translation": parts[:1], "cross": parts[1:]}
    assert attention.find_layers({*encoder, *parts}) == expected


def make_tokens(*words: str) -> attention.Tokens:
    """Returns tokens: a piece after "+" goes on with the word before it, one in brackets is special."""
    is_special = [word.startswith("[") for word in words]
    numbers = np.cumsum([not word.startswith("+") for word in words]) - 1
    texts = [word.removeprefix("+") for word in words]
    return attention.Tokens([*words], texts, numbers.tolist(), is_special)


def test_a_word_is_aligned_where_its_pieces_are_predicted():
    queries = make_tokens("[CLS]", "Gesetz", "+e", "gut")
    keys = make_tokens("good", "law", "+s", "[SEP]")
    weights = np.zeros((3, 2, 4, 4), np.float32)
    weights[1, :, 0] = [0.3, 0.2, 0.2, 0.3]  # predicts "Gesetz"
    weights[1, :, 1] = [0.1, 0.1, 0.4, 0.4]
    weights[1, 0, 2] = [0.2, 0.1, 0.1, 0.6]  # predicts "gut", as the mean of both heads
    weights[1, 1, 2] = [0.6, 0.1, 0.1, 0.2]
    weights[[0, 2], :, :, 3] = 1
    result = attention.align(attention.Map("cross", queries, keys, weights))
    assert [(pair["target"], pair["source"]) for pair in result] == [
        ("Gesetze", "laws"),
        ("gut", "good"),
    ]
    shares = [pair["probability"] for pair in result]
    np.testing.assert_allclose(shares, [(0.4 + 0.5) / 2, 0.4], atol=1e-3)


SENTENCES = {
    "wordpiece": ["the quick brown foxes jump"],
    "unigram": ["the quick brown foxes jump"],
    "exact": ["the quick brown foxes"],
    "byte_bpe": ["the quick brown foxes", "שלום עולם", "نص عربي", "我们在北京。 再见", "a 🙂 b"],
}


@pytest.mark.parametrize(
    "kind, text", [(kind, text) for kind in SENTENCES for text in SENTENCES[kind]]
)
def test_pieces_of_a_word_are_joined(kind, text):
    is_exact = kind == "exact"  # without a space in front of a text
    kind = "byte_bpe" if is_exact else kind
    tokenizer = tokenizers.train(kind, PROSE, SIZES[kind], True, is_exact)
    [ids] = tokenizer.encode([text])
    ids = [tokenizer.cls, *ids, tokenizer.sep]
    tokens = attention.describe(tokenizer, ids)
    texts = [text for text, _ in attention.find_words(tokens)]
    assert texts == text.split() and len(ids) > len(texts) + 2
    assert tokens.words[0] < tokens.words[1]
    assert len(tokens.pieces) == len(tokens.texts) == len(tokens.words) == len(ids)
    assert tokens.is_special == [True, *[False] * (len(ids) - 2), True]


class Bag(nn.Module):
    """A network without attention."""

    def states(self, batch, keys):
        return [batch["tokens"]]


class Parts(nn.Module):
    """A network whose keys are not the tokens of a row: there are more, or what is read of them is less than all."""

    more: int
    share: float

    def probabilities(self, x):
        first = jnp.zeros((len(x), 1, x.shape[1]), int)
        return self.share * nn.one_hot(first, x.shape[1] + self.more)

    def states(self, batch, keys):
        return [self.probabilities(batch["tokens"])]


@pytest.mark.parametrize("module", [None, Bag(), Parts(0, 0.5), Parts(1, 1.0)])
def test_a_network_without_attention_is_named(models, module):
    model = models["bert"]
    objective = replace(model.objective, module=attention.Body(module))
    with pytest.raises(BadInput, match="^model.name=bert: (its attention is not|has no states)"):
        attention.compute(model._replace(objective=objective), "a model", [TEXT])


REFUSED = {
    "tokens, the model has 32 positions": ("bert", ["the fox " * 32]),
    "32 positions": ("transformer", [TEXT, "the fox " * 32]),
    "a causal LM reads one text": ("gpt", [TEXT, TEXT]),
    "has no text": ("bert", [TEXT, " \n"]),
    "probabilities, at most 9 are shown": ("bert", [TEXT]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_shown_is_refused_in_one_line(models, monkeypatch, message):
    monkeypatch.setattr(page, "MOST", 9)
    name, texts = REFUSED[message]
    with pytest.raises(BadInput, match=message) as error:
        compute(models, name, *texts)
    assert "\n" not in str(error.value)
