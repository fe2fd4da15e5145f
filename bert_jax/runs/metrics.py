"""Metrics as pairs (sum, weight), and peak memory."""

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


def peak_bytes(devices) -> int | None:
    """Returns the largest peak memory of the devices in bytes; None if none reports it."""
    memory = [device.memory_stats() or {} for device in devices]
    peaks = [stats["peak_bytes_in_use"] for stats in memory if "peak_bytes_in_use" in stats]
    return max(peaks, default=None)
