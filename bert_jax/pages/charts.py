"""Charts by Vega-Lite (BSD-3). Their specifications are in charts.json; here they get their data.

Texts of a run are values of data or titles, never names of fields or expressions.
"""

import json
import math
from html import escape
from pathlib import Path

import numpy as np
from vl_convert import javascript_bundle

from bert_jax.pages import html

SPECS = Path(__file__).with_suffix(".json")
PIXELS = 500  # intervals of a curve, each with its least and its greatest value
LONG = 24  # characters of a name that takes a row of a legend
FEW = 50  # points of a chart, below which each one is drawn, too
BAR = 20  # height of a bar, in pixels
# As SVG, which is sharp in print.
DRAW = """for (const [id, spec] of Object.entries(charts))
  vegaEmbed("#" + id, spec, {actions: false, renderer: "svg"});"""


def decimate(x: np.ndarray, y: np.ndarray, intervals: int = PIXELS) -> np.ndarray:
    """Returns int64[M], increasing: which points of a curve to draw, so that it looks as with all of them.

    Of each of the equal intervals of x these are the least and the greatest y, and the first and last point of all.
    Those whose y is not finite are left out.
    """
    finite = np.flatnonzero(np.isfinite(y))
    if len(finite) <= 2 * intervals:
        return finite
    x = x[finite]
    position = (x - x.min()) / np.ptp(x) * intervals
    number = np.minimum(position.astype(np.int64), intervals - 1)
    order = np.lexsort((y[finite], number))
    is_last = np.diff(number[order], append=intervals) > 0
    least = order[np.roll(is_last, 1)]
    greatest = order[is_last]
    return finite[np.unique([0, *least, *greatest, len(finite) - 1])]


def points(x: np.ndarray, y: np.ndarray, **texts) -> list[dict]:
    """Returns {x, y, **texts} of the points of a curve float64[N] that are drawn."""
    chosen = decimate(x, y)
    pairs = zip(x[chosen].tolist(), y[chosen].tolist(), strict=True)
    return [{"x": short(a), "y": short(b), **texts} for a, b in pairs]


def short(number: float) -> float:
    """Returns a number with six significant digits."""
    return float(f"{number:.6g}") if math.isfinite(number) else 0.0


def spec(kind: str, titles: dict[str, str], **datasets: list[dict]) -> dict:
    """Returns the specification of a chart.

    kind: curves, with the data sets
        lines     {x, y, line}, and `part` of a line; there is a gap between its parts
        shades    {text, x, x2, opacity}, intervals of x
        levels    {text, y}
        marks     {text, x, y, shape} at the top; y is a number that is shown
        or bars, with the data set bars {text, x}.
    titles: of the axes x and y.
    """
    specs = json.loads(SPECS.read_text())
    result = specs["look"] | specs[kind] | {"datasets": datasets}
    result["config"]["range"] = {"category": html.COLORS}
    if "layer" in result:
        result["layer"] = [
            layer for layer in result["layer"] if datasets.get(layer["data"]["name"])
        ]
    for axis, title in titles.items():
        # Vega's expressions, in which a title is, too, have no line ends in texts.
        result["encoding"][axis]["title"] = " ".join(title.splitlines())
    names = {point["line"] for point in datasets.get("lines", ())}
    result["config"]["legend"]["columns"] = 2 if max(map(len, names), default=0) < LONG else 1
    if len(datasets.get("lines", ())) < FEW:
        result["config"]["line"] = {"point": True}
    return result


def bars(numbers: dict[str, float], title: str) -> dict:
    """Returns a chart of a bar for each name, in their order. title: of the numbers."""
    values = [{"text": name, "x": short(number)} for name, number in numbers.items()]
    return spec("bars", {"x": title}, bars=values) | {"height": BAR * len(values)}


def side_by_side(figures: list[str]) -> str:
    """Returns the HTML of charts' places, two in a row where there is room."""
    return f'<div class="charts">{"".join(figures)}</div>'


class Figures:
    """The charts of a page: `add` returns the place of one, `scripts` what draws all of them."""

    def __init__(self):
        self.specs = {}

    def add(self, spec: dict, caption: str) -> str:
        """Returns the HTML of a chart's place. caption: text."""
        name = f"chart{len(self.specs)}"
        self.specs[name] = spec
        text = escape(caption)
        return f'<figure><figcaption>{text}</figcaption><div id="{name}"></div></figure>'

    def scripts(self) -> tuple[str, str]:
        """Returns Vega, Vega-Lite and Vega-Embed, and what draws the charts."""
        return javascript_bundle(), f"const charts = {html.data(self.specs)};\n{DRAW}"
