"""Means as (sum, weight); numbers of parameters; peak memory."""

import math

import jax


def add(a: dict, b: dict) -> dict:
    """Sums of sums and of weights."""
    return jax.tree.map(lambda x, y: x + y, a, b)


def means(metrics: dict) -> dict[str, float]:
    """{name: (sum, weight)} on devices or hosts -> {name: mean}; NaN where nothing was weighed."""
    metrics = jax.device_get(metrics)
    return {
        name: float(total) / float(weight) if weight else math.nan
        for name, (total, weight) in metrics.items()
    }


def peak_bytes(devices) -> int | None:
    """That the fullest of this process's devices has ever used, where they tell."""
    known = [device.memory_stats() or {} for device in devices]
    peaks = [stats["peak_bytes_in_use"] for stats in known if "peak_bytes_in_use" in stats]
    return max(peaks, default=None)


def parameters(params, vocabulary: int) -> dict[str, int]:
    return {
        "parameters": count(params, vocabulary),
        "encoder_parameters": count({"encoder": params["encoder"]}, vocabulary),
    }


def count(params, vocabulary: int) -> int:
    """Parameters without the rows that pad the vocabulary."""
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    for path, leaf in jax.tree.leaves_with_path(params):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(
            ("embedder/words", "mlm/bias")
        ):
            total -= leaf.size * (leaf.shape[0] - vocabulary) // leaf.shape[0]
    return total
