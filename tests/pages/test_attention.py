"""The page of an attention has its numbers and tokens, and requests nothing."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from pages.test_html import EVIL, Tags

from bert_jax.pages import attention


def tokens(*texts: str) -> SimpleNamespace:
    """Returns the tokens of words, the first of which is special."""
    words = [*range(len(texts))]
    is_special = [index == 0 for index in words]
    return SimpleNamespace(texts=[*texts], words=words, is_special=is_special)


def draw(*sides: SimpleNamespace) -> SimpleNamespace:
    """Returns an attention of three layers of two heads, from the first tokens to the second ones."""
    shape = 3, 2, *(len(side.texts) for side in sides)
    weights = np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.2), shape[:-1])
    weights[0, 0, 0] = np.eye(shape[-1])[1]
    each = SimpleNamespace(name="cross", queries=sides[0], keys=sides[1], weights=weights)
    masks = [{"position": 2, "candidates": [{"piece": EVIL, "probability": 0.25}]}]
    alignment = [{"target": EVIL, "source": "fox", "probability": 0.5}]
    return SimpleNamespace(name=EVIL, maps=[each], masks=masks, alignment=alignment)


def data_of(page: str) -> dict:
    """Returns the data that the script of a page draws."""
    return json.loads(re.search(r"<script>const PAGE = (.*);</script>", page)[1])


def weights_of(page: dict, number: int = 0) -> np.ndarray:
    """Returns the probabilities of a map of a page, as its script reads them."""
    each = page["maps"][number]
    short, first, following = page["short"]
    codes = np.array([*map(ord, each["weights"])])
    numbers = np.where(codes < following, codes - first, codes - following + short)
    sides = (len(page["texts"][each[side]]["tokens"]) for side in ("queries", "keys"))
    return numbers.reshape(each["layers"], each["heads"], *sides) / page["scale"]


@pytest.fixture(scope="module")
def drawn():
    return draw(tokens("[CLS]", EVIL, "dog", ""), tokens("[CLS]", "שלום", "עולם"))


def test_the_page_has_the_numbers(drawn):
    page = data_of(attention.page(drawn))
    weights = weights_of(page)
    np.testing.assert_allclose(weights, drawn.maps[0].weights, atol=0.00051)
    assert weights.max() == 1
    queries, keys = page["texts"]
    assert queries["tokens"] == drawn.maps[0].queries.texts
    assert (queries["direction"], keys["direction"]) == ("ltr", "rtl")


def test_each_number_has_a_character_that_html_does_not_escape():
    numbers = np.arange(attention.SCALE + 1) / attention.SCALE
    text = attention.encode(numbers)
    assert len({*text}) == len(text) == len(numbers)
    assert not {*text} & {*"<>&\"'"} and not re.search(r"[\x00-\x20\x7f-\xa0\s]", text)


def test_texts_of_the_page_are_data_and_nothing_is_requested(drawn):
    page = attention.page(drawn)
    parser = Tags()
    parser.feed(page)
    names = [tag for tag, _ in parser.tags]
    assert names.count("script") == 2 and "img" not in names
    assert "".join(parser.texts).count(EVIL) == 4  # title, heading, and a cell of each table
    assert not any({"src", "href"} & each.keys() for _, each in parser.tags)
    sources = attention.SCRIPT.read_text() + attention.STYLE.read_text()
    assert not re.search(r"https?:|url\(|import|fetch|XMLHttp|WebSocket|eval\(", sources)


def test_a_page_inside_another_one_is_one_attribute(drawn):
    page = attention.page(drawn)
    parser = Tags()
    parser.feed(attention.inside(page))
    [(tag, values)] = parser.tags
    assert tag == "iframe" and values["srcdoc"] == page and values["sandbox"] == "allow-scripts"
