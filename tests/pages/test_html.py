"""The frame of pages: texts are data, and nothing is requested from another host."""

import json
from html.parser import HTMLParser

from bert_jax.pages import html

EVIL = "</script><script>alert('x')</script><img src=https://example.org/a.png>&amp;\u2028"


class Tags(HTMLParser):
    """Collects the tags of a page, and the texts outside of scripts and styles."""

    def __init__(self):
        super().__init__()
        self.tags = []
        self.texts = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags[-1:] and self.tags[-1][0] not in ("script", "style"):
            self.texts.append(data)


def test_texts_are_escaped_everywhere():
    script = f"const data = {html.data({'text': EVIL})};"
    page = html.document(EVIL, html.table([[EVIL]], heads=(EVIL,)), scripts=(script,))
    parser = Tags()
    parser.feed(page)
    names = [tag for tag, _ in parser.tags]
    assert names.count("script") == 1 and "img" not in names
    # The browser runs this script alone.
    (policy,) = [each["content"] for _, each in parser.tags if "http-equiv" in each]
    assert html.hash_of(script) in policy and "script-src 'unsafe-eval' 'sha256-" in policy
    assert "".join(parser.texts).count(EVIL) == 4  # title, heading, head and cell


def test_data_is_the_same_in_a_script():
    assert json.loads(html.data({"text": EVIL, "ü": [1.5, None]})) == {
        "text": EVIL,
        "ü": [1.5, None],
    }


def test_a_page_may_request_nothing():
    parser = Tags()
    parser.feed(html.document("a", ""))
    (policy,) = [each for tag, each in parser.tags if "http-equiv" in each]
    assert policy["content"].startswith("default-src 'none'")
    assert not any({"src", "href"} & each.keys() for _, each in parser.tags)
