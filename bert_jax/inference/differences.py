"""Differences between the arrays of two models: their parameters or their outputs."""

import numpy as np


def compare(left: dict, right: dict) -> tuple[dict[str, list], list[dict]]:
    """Compares two {name: array}.

    Returns {name: [shape, shape]} where they differ or one side has no such array (None), and [{tensor: name,
    **difference}] of the others, the largest difference first.
    """
    sides = left, right
    shapes = {n: [getattr(side.get(n), "shape", None) for side in sides] for n in left | right}
    different = {name: pair for name, pair in shapes.items() if pair[0] != pair[1]}
    same = [n for n in shapes if n not in different]
    entries = [{"tensor": name, **difference(left[name], right[name])} for name in same]
    return different, sorted(entries, key=lambda entry: (-entry["difference"], entry["tensor"]))


def difference(a: np.ndarray, b: np.ndarray) -> dict:
    """Returns {difference, bitwise} of two arrays of the same shape.

    difference is the maximum over the elements. It is infinite if only one of two elements is NaN, or if they are
    different infinities. Two NaN, or twice the same infinity, do not differ.
    """
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    distances = np.abs(np.subtract(a, b, where=~equal, out=np.zeros(a.shape), dtype=np.float64))
    largest = float(np.nan_to_num(distances, nan=np.inf).max(initial=0.0))
    return {"difference": largest, "bitwise": a.dtype == b.dtype and a.tobytes() == b.tobytes()}
