"""Means as (sum, weight); work and utilization of a step."""

import math

import jax

from bert_jax.topology import CHIPS

# Published peak of bfloat16 matrix products, FLOP/s a device, by `device_kind`; of some TPUs JAX knows two names.
PEAK_FLOPS = {
    name: chip.flops / chip.devices
    for kind, chip in CHIPS.items()
    for name in (chip.device_kind, f"TPU {kind}")
} | {
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


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


def row_flops(model, vocabulary: int, length: int, predictions: int, sequences: int = 1) -> float:
    """Floating-point operations of a training step, a row: three times the matrix products of the forward pass.

    Only the masked positions meet the vocabulary. Remat and dropout do not count; the attention of one packed pair to
    another does, which is computed before it is masked.
    """
    width, hidden = model.width, model.feed_forward or 4 * model.width
    layer = (8 * width**2 + 4 * width * hidden) * length + 4 * length**2 * width
    head = 2 * predictions * (width**2 + width * vocabulary) + 2 * sequences * width**2
    return 3.0 * (model.layers * layer + head)


def utilization(flops_per_second: float, devices) -> float | None:
    """Share of the devices' published peak; None where it is not known."""
    peaks = [PEAK_FLOPS.get(device.device_kind) for device in devices]
    return None if None in peaks else flops_per_second / sum(peaks)


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
