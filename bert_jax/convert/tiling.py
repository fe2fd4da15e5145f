"""A larger network starts from a smaller one by tiling, as ModernBERT-large did (arXiv:2412.13663, section 2.2.2).

An array lies in the middle of the larger one, and repeats outward from there. A layer starts from the one at the same
share of the depth. The rule is that of https://github.com/AnswerDotAI/ModernBERT, src/bert_layers/initialization.py.
"""

import re

import numpy as np
from ml_collections import ConfigDict

MODELS = ("bert", "albert", "electra", "modernbert", "roberta", "gpt")  # with one stack of layers
SIZES = ("model.layers", "model.width", "model.heads", "model.feed_forward")


def fits(source: ConfigDict, config: ConfigDict) -> bool:
    """Returns whether the network of a config can start from that of a source: one of the same architecture whose heads
    have the same size."""
    small, large = source.model, config.model
    is_known = small.name == large.name and small.name in MODELS
    return is_known and small.width * large.heads == large.width * small.heads


def path_before(path: str, layers: int, before: int) -> str:
    """Returns the path in the smaller network of what a parameter starts from.

    layers: of the larger network.
    before: of the smaller one.
    """

    def number_before(match: re.Match) -> str:
        number = round(int(match[0]) * before / layers)
        return str(min(number, before - 1))

    return re.sub(r"(?<=/blocks_)[0-9]+", number_before, path)


def tile(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns an array of another shape, which is at least as large along each axis, by the rule."""
    added = np.subtract(shape, array.shape)
    widths = [(count // 2, count - count // 2) for count in added]
    return np.pad(array, widths, mode="wrap")
