"""Metrics as pairs (sum, weight)."""

import math

import jax


def add(a: dict, b: dict) -> dict:
    """Adds two dicts of (sum, weight)."""
    return jax.tree.map(lambda x, y: x + y, a, b)


def means(metrics: dict) -> dict[str, float]:
    """Converts {name: (sum, weight)}, on devices or the host, to {name: mean}; NaN if the weight is 0."""
    metrics = jax.device_get(metrics)
    return {
        name: float(total) / float(weight) if weight else math.nan
        for name, (total, weight) in metrics.items()
    }
