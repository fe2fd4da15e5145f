"""The page of an attention has its numbers and tokens, and requests nothing."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from kits import browser
from pages.test_html import EVIL, Tags

from bert_jax.pages import attention


def tokens(*texts: str) -> SimpleNamespace:
    """Returns the tokens of words, the first of which is special; one after "+" goes on with its word."""
    is_special = [index == 0 for index in range(len(texts))]
    words = np.cumsum([not text.startswith("+") for text in texts])
    texts = [text.removeprefix("+") for text in texts]
    return SimpleNamespace(texts=texts, words=words, is_special=is_special)


def draw(**maps: tuple[SimpleNamespace, SimpleNamespace]) -> SimpleNamespace:
    """Returns an attention of three layers of two heads. maps: {name: (tokens that read, tokens that are read)}."""
    drawn = []
    for name, (queries, keys) in maps.items():
        shape = 3, 2, len(queries.texts), len(keys.texts)
        weights = np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.2), shape[:-1])
        weights[0, 0, 0] = np.eye(shape[-1])[1]
        drawn.append(SimpleNamespace(name=name, queries=queries, keys=keys, weights=weights))
    masks = [[{"piece": EVIL, "probability": 0.25}]]
    alignment = [{"target": EVIL, "source": "fox", "probability": 0.5}]
    return SimpleNamespace(name=EVIL, maps=drawn, masks=masks, alignment=alignment)


def data_of(page: str) -> list[dict]:
    """Returns the maps that the script of a page draws."""
    return json.loads(re.search(r"<script>const PAGE = (.*);</script>", page)[1])


def weights_of(drawn: dict) -> np.ndarray:
    """Returns the probabilities of a map of a page, [layers times heads, L, M], as its script reads them."""
    codes = np.array([*map(ord, drawn["weights"])])
    numbers = codes - np.where(codes < 128, 65, 134)
    return numbers.reshape(-1, drawn["queries"], drawn["keys"]) / 1000


TARGET = tokens("[CLS]", EVIL, "un", "+", "+seen")
SOURCE = tokens("[CLS]", "שלום", "עולם")


@pytest.fixture(scope="module")
def drawn():
    return draw(cross=(TARGET, SOURCE))


def test_the_page_has_the_numbers(drawn):
    [data] = data_of(attention.page(drawn))
    weights = weights_of(data)
    np.testing.assert_allclose(weights, np.concatenate(drawn.maps[0].weights), atol=0.00051)
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
    assert "un·seen" in text  # "·" is a piece of a character
    assert names.count("p") == 2 + 2 + 1 + 1 and names.count("input") == 6
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


MAPS = {
    "text": {"text": (SOURCE, SOURCE)},
    "translation": {
        "text": (SOURCE, SOURCE),
        "translation": (TARGET, TARGET),
        "cross": (TARGET, SOURCE),
    },
}


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", MAPS)
def test_a_token_shows_its_weights_in_a_browser(tmp_path, name, scheme):
    drawn = draw(**MAPS[name])
    path = tmp_path / "attention.html"
    path.write_text(attention.page(drawn))
    with browser.opened(path, scheme) as page:
        sections = page.locator("section")
        assert sections.count() == len(drawn.maps)
        for number, each in enumerate(drawn.maps):
            check_section(page, sections.nth(number), each)


def check_section(page, section, each: SimpleNamespace) -> None:
    """Asserts the pictures of all heads, and the numbers and lines of tokens of one of them."""
    heads = section.locator(".heads label")
    canvases = section.locator("canvas")
    read = "canvases => canvases.map(canvas => canvas.toDataURL())"
    assert len({*canvases.evaluate_all(read)}) == heads.count() == 6
    heads.nth(4).click()
    page.keyboard.press("ArrowRight")
    assert section.locator("h3").inner_text() == "layer 3, head 2"
    lines = section.locator("line")
    numbers = section.locator(".numbers")
    weights = each.weights[2, 1].round(3)
    assert lines.count() == (weights >= 0.1).sum() and not numbers.inner_text()
    for side, text in enumerate(section.locator(".view p").all()):
        tokens = text.locator("span")
        expected = np.moveaxis(weights, side, 0)[2]
        tokens.nth(2).hover()
        shown = [float(number) for number in re.findall(r" ([01][.\d]*)", numbers.inner_text())]
        np.testing.assert_allclose(shown, sorted(expected[expected > 0], reverse=True))
        assert lines.count() == len(shown)
        page.mouse.move(0, 0)
        assert not numbers.inner_text()
        tokens.nth(1).focus()
        assert numbers.inner_text().startswith(tokens.nth(1).inner_text())
        tokens.nth(1).blur()
    read = "texts => texts.map(text => getComputedStyle(text).direction)"
    directions = section.locator(".view p").evaluate_all(read)
    assert directions == ["rtl" if side is SOURCE else "ltr" for side in (each.queries, each.keys)]
