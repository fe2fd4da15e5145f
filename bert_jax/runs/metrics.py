"""Means as (sum, weight); peak memory."""

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
