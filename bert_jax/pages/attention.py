"""The page of the attention in a text: small maps of all heads, and for a token which ones it reads, and which read it.

The weights of a map are in it as text, a character for each, see `encode`.
"""

import itertools
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.pages import html

# Probabilities of a map. 512 tokens in 12 layers of 12 heads have 37.7 million; each takes a byte or two of the file.
MOST = 40_000_000
HINT = """<p>A map has a row for each token that reads and a column for each token that is read; the stronger its
color, the more. Choose a head, then point to a token. By the keyboard, Tab goes to the maps and to the tokens, and the
arrow keys go to other maps.</p>
<noscript><p>The maps need JavaScript.</p></noscript>"""
NAMES = {
    "text": "Attention in the text",
    "translation": "Attention in the translation",
    "cross": "From the translation to the text",
}
SECTION = """<section>
<h2>{name}</h2>
<div class="heads" style="--heads: {heads}">{choices}</div>
<h3></h3>
<div class="view"><svg aria-hidden="true"></svg>
<div class="faint">reads</div>
{queries}
{keys}
<div class="faint">is read</div></div>
<p class="numbers" aria-live="polite"></p>
</section>"""
HEAD = (
    '<label title="{0}"><input type="radio" name="{1}" aria-label="{0}"><canvas></canvas></label>'
)
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
        layers, heads, *size = each.weights.shape
        numbers = itertools.product(range(1, layers + 1), range(1, heads + 1))
        choices = [HEAD.format("layer {}, head {}".format(*pair), each.name) for pair in numbers]
        section = SECTION.format(
            name=NAMES[each.name],
            heads=heads,
            choices="".join(choices),
            queries=draw_tokens(each.queries),
            keys=draw_tokens(each.keys),
        )
        parts.append(section)
        sizes = dict(zip(("queries", "keys"), size, strict=True))
        maps.append(sizes | {"weights": encode(each.weights)})
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


def draw_tokens(tokens: Any) -> str:
    """Returns the tokens of a text, those of a word without a space between them. Its first letter that is of no
    special token decides whether it runs from right to left."""
    spans = []
    word = None
    for text, number, is_special in zip(tokens.texts, tokens.words, tokens.is_special, strict=True):
        space = "" if number == word else " "
        kind = ' class="faint" dir="ltr"' if is_special or not text else ""
        spans.append(f'{space}<span tabindex="0"{kind}>{escape(text or "·")}</span>')
        word = number
    return f'<p dir="auto">{"".join(spans)}</p>'


def encode(weights: np.ndarray) -> str:
    """Returns probabilities as text, a character each, in the order of their axes.

    Up to 57 thousandths are the characters "A" to "z", of one byte, and more those from "À" on. HTML escapes none.
    """
    numbers = np.rint(weights.ravel() * 1000).astype("<u2")
    numbers += np.where(numbers < 58, 65, 134).astype("<u2")
    return numbers.tobytes().decode("utf-16-le")
