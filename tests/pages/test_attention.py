"""The page of an attention has its numbers and tokens, and requests nothing."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from pages.test_html import EVIL, Tags

from bert_jax.pages import attention


def tokens(*texts: str) -> SimpleNamespace:
    """Returns the tokens of words, the first of which is special; one after "+" goes on with its word."""
    is_special = [index == 0 for index in range(len(texts))]
    words = np.cumsum([not text.startswith("+") for text in texts])
    texts = [text.removeprefix("+") for text in texts]
    return SimpleNamespace(texts=texts, words=words, is_special=is_special)


def draw(*sides: SimpleNamespace) -> SimpleNamespace:
    """Returns an attention of three layers of two heads, from the first tokens to the second ones."""
    shape = 3, 2, *(len(side.texts) for side in sides)
    weights = np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.2), shape[:-1])
    weights[0, 0, 0] = np.eye(shape[-1])[1]
    each = SimpleNamespace(name="cross", queries=sides[0], keys=sides[1], weights=weights)
    masks = [[{"piece": EVIL, "probability": 0.25}]]
    alignment = [{"target": EVIL, "source": "fox", "probability": 0.5}]
    return SimpleNamespace(name=EVIL, maps=[each], masks=masks, alignment=alignment)


def data_of(page: str) -> list[dict]:
    """Returns the maps that the script of a page draws."""
    return json.loads(re.search(r"<script>const PAGE = (.*);</script>", page)[1])


def weights_of(drawn: dict) -> np.ndarray:
    """Returns the probabilities of a map of a page, as its script reads them."""
    codes = np.array([*map(ord, drawn["weights"])])
    numbers = codes - np.where(codes < 128, 65, 134)
    size = [drawn[name] for name in ("heads", "rows", "columns")]
    return numbers.reshape(-1, *size) / 1000


@pytest.fixture(scope="module")
def drawn():
    return draw(tokens("[CLS]", EVIL, "un", "+seen", "+"), tokens("[CLS]", "שלום", "עולם"))


def test_the_page_has_the_numbers(drawn):
    [data] = data_of(attention.page(drawn))
    weights = weights_of(data)
    np.testing.assert_allclose(weights, drawn.maps[0].weights, atol=0.00051)
    assert weights.max() == 1


def test_each_number_has_a_character_that_html_does_not_escape():
    numbers = np.arange(1001) / 1000
    text = attention.encode(numbers)
    assert len({*text}) == len(text) == len(numbers)
    assert not {*text} & {*"<>&\"'"} and not re.search(r"[\x00-\x20\x7f-\xa0\s]", text)


def test_texts_of_the_page_are_data_and_nothing_is_requested(drawn):
    page = attention.page(drawn)
    parser = Tags()
    parser.feed(page)
    names = [tag for tag, _ in parser.tags]
    assert names.count("script") == 2 and "img" not in names
    text = "".join(parser.texts)
    assert text.count(EVIL) == 5  # title, heading, token, and a cell of each table
    assert "unseen·\n" in text  # "·" is a further piece of a character
    assert [each["dir"] for tag, each in parser.tags if "dir" in each] == ["ltr", "rtl"]
    assert names.count("canvas") == 6 and names.count("span") == 5 + 3
    assert not any({"src", "href"} & each.keys() for _, each in parser.tags)
    sources = attention.SCRIPT.read_text() + attention.STYLE.read_text()
    assert not re.search(r"https?:|url\(|import|fetch|XMLHttp|WebSocket|eval\(", sources)


def test_a_page_inside_another_one_is_one_attribute(drawn):
    page = attention.page(drawn)
    parser = Tags()
    parser.feed(attention.inside(page))
    [(tag, values)] = parser.tags
    assert tag == "iframe" and values["srcdoc"] == page and values["sandbox"] == "allow-scripts"
