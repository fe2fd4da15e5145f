"""The page of the attention in a text: small maps of all heads, and for a token which ones it reads, and which read it.

The weights of a map are in it as text, a character for each thousandth, see `encode`.
"""

import unicodedata
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.pages import html

# Probabilities of a page. 512 tokens in 12 layers of 12 heads have 37.7 million; each takes a byte or two of the file.
MOST = 40_000_000
SCALE = 1000  # of a probability; a character is its thousandths
SHORT = (
    58  # thousandths below this are letters, which have one byte: "A" and those after it up to "z"
)
FIRST, NEXT = (
    65,
    192,
)  # the characters of 0 and of SHORT thousandths; between them are those that HTML escapes
NAMES = {
    "text": "Attention in the text",
    "translation": "Attention in the translation",
    "cross": "From the translation to the text",
}
SCRIPT = Path(__file__).with_name("attention.js")
STYLE = Path(__file__).with_name("attention.css")
RIGHT_TO_LEFT = ("R", "AL")  # of unicodedata.bidirectional


def page(attention: Any) -> str:
    """Returns the page of an attention (inference/attention.py): its name, maps, masks, and alignment."""
    texts = []
    maps = []
    for each in attention.maps:
        layers, heads, *_ = each.weights.shape
        sides = {}
        for side in ("queries", "keys"):
            text = describe(getattr(each, side))
            if text not in texts:
                texts.append(text)
            sides[side] = texts.index(text)
        size = {"layers": layers, "heads": heads}
        name = {"name": NAMES[each.name]}
        maps.append(name | sides | size | {"weights": encode(each.weights)})
    value = {"texts": texts, "maps": maps, "scale": SCALE, "short": [SHORT, FIRST, NEXT]}
    scripts = f"const PAGE = {html.data(value)};", SCRIPT.read_text()
    body = "\n".join([*introduction(), *tables(attention)])
    title = f"Attention: {attention.name}"
    return html.document(title, body, STYLE.read_text(), scripts)


def inside(page: str) -> str:
    """Returns a page as an element of another document, such as a notebook. Its style and scripts stay inside."""
    size = "width: 100%; height: 45rem; border: 0"
    return f'<iframe sandbox="allow-scripts" style="{size}" srcdoc="{escape(page)}"></iframe>'


def introduction() -> list[str]:
    """Returns what stands above the maps, and the place for them."""
    return [
        "<p>A map has a row for each token that reads and a column for each token that is read; the darker, the more."
        " Choose a head, then a token, by the pointer or by Tab and the arrow keys; Escape shows all of a head.</p>",
        "<noscript><p>The maps need JavaScript.</p></noscript>",
        '<main id="maps"></main>',
    ]


def tables(attention: Any) -> list[str]:
    """Returns the tables of the predictions at masks and of the alignment, if there are any."""
    parts = []
    if attention.masks:
        rows = []
        for mask in attention.masks:
            pieces = [f"{each['piece']} {each['probability']:.3f}" for each in mask["candidates"]]
            rows.append([mask["position"], ", ".join(pieces)])
        parts += ["<h2>Masks</h2>", html.table(rows, ("position", "predictions"))]
    if attention.alignment:
        keys = "target", "source"
        rows = []
        for pair in attention.alignment:
            rows.append([*(pair[key] for key in keys), f"{pair['probability']:.3f}"])
        note = (
            "<p>For each word of the translation, the word of the text that it reads most: the mean of all heads of the"
            " layer before the last one, where the word is predicted (arXiv:1909.02074).</p>"
        )
        heads = "translation", "text", "probability"
        parts += ["<h2>Alignment</h2>", note, html.table(rows, heads)]
    return parts


def describe(tokens: Any) -> dict:
    """Returns the texts, words, and direction of tokens for the script."""
    return {
        "tokens": tokens.texts,
        "words": tokens.words,
        "special": [int(is_special) for is_special in tokens.is_special],
        "direction": direction("".join(tokens.texts[1:])),
    }


def direction(text: str) -> str:
    """Returns the direction of a text by its letters: rtl if most of them are of a script from right to left."""
    kinds = [unicodedata.bidirectional(character) for character in text]
    count = sum(kinds.count(kind) for kind in RIGHT_TO_LEFT)
    return "rtl" if count > kinds.count("L") else "ltr"


def encode(weights: np.ndarray) -> str:
    """Returns probabilities as text, a character each, in the order of their axes."""
    numbers = np.rint(weights.ravel() * SCALE).astype(np.uint16)
    codes = np.where(numbers < SHORT, numbers + FIRST, numbers - SHORT + NEXT)
    return codes.astype("<u2").tobytes().decode("utf-16-le")
