"""The page of the attention in a text: small maps of all heads, and for a token which ones it reads, and which read it.

The weights of a map are in it as text, a character for each, see `encode`.
"""

import unicodedata
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.pages import html

# Probabilities of a map. 512 tokens in 12 layers of 12 heads have 37.7 million; each takes a byte or two of the file.
MOST = 40_000_000
HINT = """<p>A map has a row for each token that reads and a column for each token that is read; the darker, the more.
Choose a head, then a token, by the pointer or by Tab and the arrow keys; Escape shows all of a head.</p>
<noscript><p>The maps need JavaScript.</p></noscript>"""
NAMES = {
    "text": "Attention in the text",
    "translation": "Attention in the translation",
    "cross": "From the translation to the text",
}
SECTION = """<section>
<h2>{name}</h2>
<div class="heads" style="--heads: {heads}">{buttons}</div>
<h3></h3>
<div class="view"><svg aria-hidden="true"></svg>
{queries}
{keys}</div>
<p class="numbers" aria-live="polite"></p>
</section>"""
BUTTON = '<button title="layer {}, head {}"><canvas></canvas></button>'
ALIGNMENT = """<h2>Alignment</h2>
<p>For each word of the translation, the word of the text that it reads most: the mean of all heads of the layer before
the last one, where the word is predicted (arXiv:1909.02074).</p>"""
SCRIPT = Path(__file__).with_name("attention.js")
STYLE = Path(__file__).with_name("attention.css")


def page(attention: Any) -> str:
    """Returns the page of an attention: name, maps, masks, and alignment of inference/attention.py."""
    parts = [HINT]
    maps = []
    for each in attention.maps:
        layers, heads, rows, columns = each.weights.shape
        buttons = [
            BUTTON.format(*number) for number in np.ndindex(1 + layers, 1 + heads) if all(number)
        ]
        section = SECTION.format(
            name=NAMES[each.name],
            heads=heads,
            buttons="".join(buttons),
            queries=draw_tokens(each.queries, "reads"),
            keys=draw_tokens(each.keys, "is read"),
        )
        parts.append(section)
        size = {"heads": heads, "rows": rows, "columns": columns}
        maps.append(size | {"weights": encode(each.weights)})
    if attention.masks:
        rows = []
        for candidates in attention.masks:
            rows.append([f"{each['piece']} {each['probability']:.3f}" for each in candidates])
        parts += ["<h2>Predictions at each mask</h2>", html.table(rows)]
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


def draw_tokens(tokens: Any, label: str) -> str:
    """Returns the tokens of a text, those of a word without a space between them."""
    spans = []
    word = None
    for text, number, is_special in zip(tokens.texts, tokens.words, tokens.is_special, strict=True):
        space = "" if number == word else " "
        kind = "faint" if is_special or not text else ""
        spans.append(f'{space}<span role="option" class="{kind}">{escape(text or "·")}</span>')
        word = number
    names = f'dir="{direction("".join(tokens.texts[1:]))}" role="listbox" aria-label="{label}"'
    return f'<div class="faint">{label}</div>\n<p {names}>{"".join(spans)}</p>'


def direction(text: str) -> str:
    """Returns the direction of a text: rtl if most letters are of a script from right to left."""
    kinds = [unicodedata.bidirectional(letter) for letter in text]
    return "rtl" if kinds.count("R") + kinds.count("AL") > kinds.count("L") else "ltr"


def encode(weights: np.ndarray) -> str:
    """Returns probabilities as text, a character each, in the order of their axes.

    Up to 57 thousandths are the characters "A" to "z", of one byte, and more those from "À" on. HTML escapes none.
    """
    numbers = np.rint(weights.ravel() * 1000).astype("<u2")
    numbers += np.where(numbers < 58, 65, 134).astype("<u2")
    return numbers.tobytes().decode("utf-16-le")
