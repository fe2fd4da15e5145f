"""Differences between the arrays of two models: their parameters or their outputs."""

import jax
import numpy as np

from bert_jax.convert import load_model


def compare(left: dict, right: dict) -> tuple[dict[str, list], list[dict]]:
    """Compares two {name: array}.

    Returns {name: [shape, shape]} where they differ or one side has no such array (None), and [{tensor: name,
    **difference}] of the others, the largest difference first.
    """
    shapes = {}
    entries = []
    for name in left | right:
        pair = [side[name].shape if name in side else None for side in (left, right)]
        if pair[0] != pair[1]:
            shapes[name] = pair
        else:
            entries.append({"tensor": name, **difference(left[name], right[name])})
    entries.sort(key=lambda entry: (-entry["difference"], entry["tensor"]))
    return shapes, entries


def difference(a: np.ndarray, b: np.ndarray) -> dict:
    """Returns {difference, bitwise} of two arrays of the same shape.

    difference is the maximum over the elements. It is infinite if only one of two elements is NaN, or if they are
    different infinities. Two NaN, or twice the same infinity, do not differ.
    """
    is_equal = (a == b) | (np.isnan(a) & np.isnan(b))
    distances = np.zeros(a.shape)
    np.subtract(a, b, where=~is_equal, out=distances, dtype=np.float64)
    largest = np.nan_to_num(np.abs(distances), nan=np.inf).max(initial=0.0)
    return {
        "difference": float(largest),
        "bitwise": a.dtype == b.dtype and a.tobytes() == b.tobytes(),
    }


def outputs(model, batch: dict) -> dict[str, np.ndarray]:
    """Returns the outputs of a model on a batch, except those of untrained heads, without the padding of the
    vocabulary. Those of a model that generates text are its logits for the texts of the batch."""
    heads = model.objective.heads
    untrained = load_model.untrained_parts(model)
    network = model.objective.network

    def compute(params, batch):
        if network is None:
            return model.objective.outputs(params, batch)
        return network.apply({"params": params}, batch, None)

    arrays = jax.jit(compute)(model.params, batch)
    result = {}
    for name, array in arrays.items():
        if name in model.objective.vocabulary_outputs:
            array = array[..., : model.vocabulary.size]
        if heads.get(name, set()).isdisjoint(untrained):
            result[name] = np.asarray(array)
    return result
