"""Charts as Vega-Lite specifications (BSD-3): plain data, which the page's script draws.

Texts of a run are values of data or titles, never names of fields or expressions.
"""

import math
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

import numpy as np

from bert_jax.errors import BadInput
from bert_jax.pages import html

SCHEMA = (
    "https://vega.github.io/schema/vega-lite/v6.json"  # names the language; nothing is requested
)
PIXELS = 500  # intervals of a curve, each with its least and its greatest value
DIGITS = 6  # significant ones
HEIGHT = 220
FEW = 50  # points of a chart, below which each one is drawn, too
SHAPES = {"spike": "triangle-down", "skipped steps": "cross"}
# Colors of a page are variables of its style, which are others in the dark and in print.
LOOK = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "gridColor": "var(--line)",
        "domainColor": "var(--faint)",
        "tickColor": "var(--faint)",
        "titleFontWeight": "normal",
    },
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor", "labelLimit": 400},
    "range": {"category": list(html.COLORS)},
}
# Draws each chart in the element with its id, as SVG, which is sharp in print.
DRAW = """
for (const [id, spec] of Object.entries(charts)) {
  vegaEmbed("#" + id, spec, {actions: false, renderer: "svg"});
}
"""


class Curve(NamedTuple):
    """A line of a chart."""

    name: str  # for the legend; lines of one name have one color
    x: np.ndarray  # float64[N]
    y: np.ndarray  # float64[N], NaN where there is no value
    kind: str = ""  # for the legend; lines of one kind have one dash. Without kinds, those of one name have one
    part: int = 0  # of the line; there is a gap between two parts


class Marks(NamedTuple):
    """Points on a curve, such as spikes."""

    kind: str  # of SHAPES
    x: np.ndarray  # float64[M]
    y: np.ndarray  # float64[M]


# --- Data -----------------------------------------------------------------------------------------


def decimate(x: np.ndarray, y: np.ndarray, intervals: int = PIXELS) -> np.ndarray:
    """Returns int64[M], increasing: which points of a curve to draw, so that it looks as with all of them.

    Of each of the equal intervals of x these are the least and the greatest y, and the first and last point of all.
    Those whose y is not finite are left out.
    """
    finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(finite) <= 2 * intervals:
        return finite
    x = x[finite]
    y = y[finite]
    position = (x - x.min()) / max(np.ptp(x), 1e-300) * intervals
    number = np.minimum(position.astype(np.int64), intervals - 1)
    order = np.lexsort((y, number))
    is_last = np.diff(number[order], append=intervals) > 0
    least = order[np.roll(is_last, 1)]
    greatest = order[is_last]
    return finite[np.unique([0, *least, *greatest, len(finite) - 1])]


def short(number: float) -> float | int | None:
    """Returns a number with DIGITS significant digits; None if it is not finite."""
    if not math.isfinite(number):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(number) if number == int(number) else rounded


def points(x: Iterable, y: Iterable, **texts) -> list[dict]:
    """Returns the values {x, y, **texts} of data."""
    return [
        {"x": short(float(a)), "y": short(float(b)), **texts} for a, b in zip(x, y, strict=True)
    ]


# --- Specifications -------------------------------------------------------------------------------


def field(channel: str, kind: str, title: str | None = None, **more) -> dict:
    """Returns the encoding of a channel by the field of its name. kind: quantitative, nominal, ordinal."""
    return {"field": channel, "type": kind, "title": title, **more}


def chart(layers: list[dict], **more) -> dict:
    """Returns the specification of layers, as wide as its place in the page."""
    base = {"$schema": SCHEMA, "width": "container", "height": HEIGHT, "config": LOOK}
    return base | {"layer": layers} | more


def curves(
    lines: list[Curve],
    titles: tuple[str, str],
    shades: Iterable[tuple[str, float, float]] = (),
    levels: dict[str, float] | None = None,
    marks: Iterable[Marks] = (),
) -> dict:
    """Returns a chart of curves, which can be moved and enlarged.

    titles: of the axes.
    shades: (name, first, last) of intervals of x; every second one is shaded.
    levels: {name: y} of horizontal lines.
    """
    axes = {
        "x": field("x", "quantitative", titles[0]),
        "y": field("y", "quantitative", titles[1], scale={"zero": False}),
    }
    values = []
    for line in lines:
        chosen = decimate(line.x, line.y)
        texts = {"line": line.name, "kind": line.kind, "part": line.part}
        values += points(line.x[chosen], line.y[chosen], **texts)
    dash = "kind" if any(line.kind for line in lines) else "line"
    encoding = axes | {
        "color": legend("line", len({value["line"] for value in values})),
        "strokeDash": legend(dash, len({value[dash] for value in values})),
        "detail": {"field": "part"},
        "tooltip": [{"field": name} for name in ("line", "kind", "x", "y")],
    }
    # A curve of one point is a point.
    mark = {"type": "line", "clip": True, "point": len(values) < FEW}
    drawn = {
        "data": {"values": values},
        "mark": mark,
        "encoding": encoding,
        "params": [{"name": "view", "select": "interval", "bind": "scales"}],
    }
    levels = levels or {}
    return chart([*shading(shades, axes), drawn, *rules(levels, axes), *crosses(marks, axes)])


def legend(name: str, count: int) -> dict:
    """Returns the encoding of a color or a dash by a field of `count` values, in the order of the data; one value has
    no legend."""
    orient = {"orient": "top"} if count > 1 else None
    return {"field": name, "type": "nominal", "title": None, "sort": None, "legend": orient}


def shading(shades: Iterable[tuple[str, float, float]], axes: dict) -> list[dict]:
    """Returns the layers of intervals of x, with their names; none for a single one."""
    values = [
        {"text": name, "x": first, "x2": last, "shade": number % 2}
        for number, (name, first, last) in enumerate(shades)
    ]
    if len(values) < 2:
        return []
    data = {"data": {"values": values}}
    opacity = {"field": "shade", "type": "nominal", "scale": {"range": [0.0, 0.1]}, "legend": None}
    encoding = {"x": axes["x"], "x2": {"field": "x2"}, "opacity": opacity}
    box = {"type": "rect", "color": "var(--faint)", "clip": True}
    text = {"type": "text", "align": "left", "dx": 3, "y": 8, "color": "var(--faint)", "clip": True}
    names = {"x": axes["x"], "text": {"field": "text"}}
    return [
        data | {"mark": box, "encoding": encoding},
        data | {"mark": text, "encoding": names},
    ]


def rules(levels: dict[str, float], axes: dict) -> list[dict]:
    """Returns the layers of horizontal lines with their names; none without lines."""
    if not levels:
        return []
    data = {"data": {"values": [{"y": short(y), "text": name} for name, y in levels.items()]}}
    line = {"type": "rule", "color": "currentColor", "strokeDash": [2, 3], "clip": True}
    text = {"type": "text", "align": "right", "x": "width", "dy": -6, "color": "currentColor"}
    return [
        data | {"mark": line, "encoding": {"y": axes["y"]}},
        data | {"mark": text, "encoding": {"y": axes["y"], "text": {"field": "text"}}},
    ]


def crosses(marks: Iterable[Marks], axes: dict) -> list[dict]:
    """Returns the layer of points, with a shape for each kind; none without points."""
    values = []
    for each in marks:
        values += points(each.x, each.y, kind=each.kind)
    if not values:
        return []
    shape = legend("kind", 2) | {"scale": {"domain": [*SHAPES], "range": [*SHAPES.values()]}}
    encoding = axes | {"shape": shape}
    encoding["tooltip"] = [{"field": name} for name in ("kind", "x", "y")]
    mark = {"type": "point", "size": 60, "color": "currentColor", "filled": False, "clip": True}
    return [{"data": {"values": values}, "mark": mark, "encoding": encoding}]


def bars(numbers: dict[str, float], title: str, unit: str = "quantitative") -> dict:
    """Returns a chart of a bar for each name, in their order. title: of the numbers."""
    values = [{"text": name, "x": short(number)} for name, number in numbers.items()]
    y = {"field": "text", "type": "nominal", "title": None, "sort": None}
    y["axis"] = {"labelLimit": 300}
    encoding = {"x": field("x", unit, title), "y": y}
    encoding["tooltip"] = [{"field": name} for name in ("text", "x")]
    mark = {"type": "bar", "color": html.COLORS[0]}
    bar = {"data": {"values": values}, "mark": mark, "encoding": encoding}
    return chart([bar], height={"step": 20})


def histogram(edges: np.ndarray, counts: np.ndarray, titles: tuple[str, str]) -> dict:
    """Returns a chart of counts int64[N] between edges float64[N + 1]. titles: of the axes."""
    values = [
        {"x": short(float(first)), "x2": short(float(last)), "y": int(count)}
        for first, last, count in zip(edges, edges[1:], counts, strict=False)
    ]
    encoding = {
        "x": field("x", "quantitative", titles[0]),
        "x2": {"field": "x2"},
        "y": field("y", "quantitative", titles[1]),
        "y2": {"datum": 0},
        "tooltip": [{"field": name} for name in ("x", "x2", "y")],
    }
    mark = {"type": "rect", "color": html.COLORS[0], "stroke": "var(--paper)"}
    return chart([{"data": {"values": values}, "mark": mark, "encoding": encoding}])


def heatmap(names: list[str], counts: list[list[int]], titles: tuple[str, str]) -> dict:
    """Returns a chart of counts: the names are those of its columns and its rows. titles: of both."""
    values = [
        {"x": column, "y": row, "count": count, "share": short(count / max(1, sum(line)))}
        for row, line in zip(names, counts, strict=True)
        for column, count in zip(names, line, strict=True)
    ]
    # No sort: in the order of the names.
    encoding = {
        "x": field("x", "nominal", titles[0], sort=None),
        "y": field("y", "nominal", titles[1], sort=None),
    }
    share = field("share", "quantitative", "share of the row", scale={"domain": [0, 1]})
    tooltip = [{"field": name} for name in ("y", "x", "count", "share")]
    cell = {"type": "rect", "color": html.COLORS[0]}
    text = {"type": "text", "color": "currentColor"}
    layers = [
        {"mark": cell, "encoding": {"opacity": share | {"legend": None}, "tooltip": tooltip}},
        {"mark": text, "encoding": {"text": {"field": "count"}}},
    ]
    return chart(layers, data={"values": values}, encoding=encoding, height={"step": 30})


# --- In a page ------------------------------------------------------------------------------------


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

    def scripts(self) -> tuple[str, ...]:
        """Returns the library and the script that draws the charts. Raises BadInput without the library."""
        if not self.specs:
            return ()
        return library(), f"const charts = {html.data(self.specs)};{DRAW}"


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed as one script. Raises BadInput if vl-convert is missing."""
    try:
        from vl_convert import javascript_bundle
    except ImportError:
        hint = "pip install -c constraints.txt vl-convert-python"
        raise BadInput(
            f"vl-convert-python is not installed, which has the charts: {hint}"
        ) from None
    return javascript_bundle()
