"""The page of the attention in a text: small maps of all heads, and for a token which ones it reads, and which read it.

The weights of a map are in it as text, a character for each, see `encode`.
"""

import unicodedata
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.pages import html

# Probabilities of a page. 512 tokens in 12 layers of 12 heads have 37.7 million; each takes a byte or two of the file.
MOST = 40_000_000
# A character stands for thousandths. Below `short` of them it is one of those from `first` on, which have one byte, and
# then one of those from `next` on. None of them is escaped in HTML.
CODE = {"scale": 1000, "short": 58, "first": ord("A"), "next": ord("À")}
NAMES = {
    "text": "Attention in the text",
    "translation": "Attention in the translation",
    "cross": "From the translation to the text",
}
HINT = """<p>A map has a row for each token that reads and a column for each token that is read; the darker, the more.
Choose a head, then a token, by the pointer or by Tab and the arrow keys; Escape shows all of a head.</p>
<noscript><p>The maps need JavaScript.</p></noscript>
<main></main>"""
ALIGNMENT = """<h2>Alignment</h2>
<p>For each word of the translation, the word of the text that it reads most: the mean of all heads of the layer before
the last one, where the word is predicted (arXiv:1909.02074).</p>"""
SCRIPT = Path(__file__).with_name("attention.js")
STYLE = Path(__file__).with_name("attention.css")


def page(attention: Any) -> str:
    """Returns the page of an attention: name, maps, masks, and alignment of inference/attention.py."""
    maps = []
    for each in attention.maps:
        size = dict(zip(("layers", "heads", "rows", "columns"), each.weights.shape, strict=True))
        sides = {"queries": describe(each.queries), "keys": describe(each.keys)}
        values = {"name": NAMES[each.name], "weights": encode(each.weights)}
        maps.append(values | size | sides | CODE)
    parts = [HINT]
    if attention.masks:
        rows = []
        for mask in attention.masks:
            pieces = [f"{each['piece']} {each['probability']:.3f}" for each in mask["candidates"]]
            rows.append([mask["position"], ", ".join(pieces)])
        parts += ["<h2>Masks</h2>", html.table(rows, ("position", "predictions"))]
    if attention.alignment:
        rows = [[*pair.values()] for pair in attention.alignment]
        parts += [ALIGNMENT, html.table(rows, ("translation", "text", "probability"))]
    scripts = f"const PAGE = {html.data(maps)};", SCRIPT.read_text()
    title = f"Attention: {attention.name}"
    return html.document(title, "\n".join(parts), STYLE.read_text(), scripts)


def inside(page: str) -> str:
    """Returns a page as an element of another document, such as a notebook. Its style and scripts stay inside."""
    size = "width: 100%; height: 45rem; border: 0"
    return f'<iframe sandbox="allow-scripts" style="{size}" srcdoc="{escape(page)}"></iframe>'


def describe(tokens: Any) -> dict:
    """Returns what the script reads of tokens, and their direction: rtl if most letters are of such a script."""
    kinds = [unicodedata.bidirectional(letter) for letter in "".join(tokens.texts[1:])]
    is_left = kinds.count("R") + kinds.count("AL") > kinds.count("L")
    return tokens._asdict() | {"direction": "rtl" if is_left else "ltr"}


def encode(weights: np.ndarray) -> str:
    """Returns probabilities as text, a character each, in the order of their axes."""
    numbers = np.rint(weights.ravel() * CODE["scale"]).astype(np.uint16)
    is_short = numbers < CODE["short"]
    codes = np.where(is_short, numbers + CODE["first"], numbers - CODE["short"] + CODE["next"])
    return codes.astype("<u2").tobytes().decode("utf-16-le")
