"""Writes stable_adamw.npz: ten steps of torch-optimi's StableAdamW with fully decoupled weight decay, in float64.

python tests/golden/make_stable_adamw.py        (needs torch and torch-optimi; the file has their `versions`)

    rates[10], betas[2]                       the learning rate of each step; epsilon is 1e-6
    before/NAME, gradients/NAME[10, ...]      float32
    after/DECAY/NAME                          float32, the parameters with this weight decay
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import optimi
import torch

FILE = Path(__file__).parent / "stable_adamw.npz"
SHAPES = {"kernel": (6, 5), "bias": (5,), "scale": (5,), "words": (7, 3)}
DECAYED = "kernel", "words"
RATES = np.float32([0, 0.02, 0.04, 0.05, 0.05, 0.05, 0.03, 0.02, 0.01, 0.001])
SIZES = np.float32([1, 1, 1, 10, 1, 1, 0.1, 3, 0, 1])  # of the gradients
BETAS = 0.9, 0.98


def make() -> dict:
    """Returns all arrays of the file. Some words have no gradient in the first steps."""
    draw, names = np.random.default_rng(0), ("torch", "torch-optimi")
    values = {"versions": json.dumps({name: version(name) for name in names})}
    values |= {"rates": RATES, "betas": np.array(BETAS)}
    for name, shape in SHAPES.items():
        values[f"before/{name}"] = draw.normal(size=shape).astype(np.float32)
        gradients = [size * draw.normal(size=shape) for size in SIZES]
        values[f"gradients/{name}"] = np.float32(gradients)
    values["gradients/words"][:5, 2:] = 0
    for decay in "0", "0.0009":
        params = {name: torch.tensor(np.float64(values[f"before/{name}"])) for name in SHAPES}
        groups = [
            {"params": [x], "weight_decay": float(decay) * (name in DECAYED)}
            for name, x in params.items()
        ]
        keys = {"lr": float(RATES.max()), "betas": BETAS, "decouple_lr": True, "triton": False}
        optimizer = optimi.StableAdamW(groups, eps=1e-6, **keys)
        for step, rate in enumerate(RATES):
            for group, (name, x) in zip(optimizer.param_groups, params.items(), strict=True):
                group["lr"] = float(rate)
                x.grad = torch.tensor(np.float64(values[f"gradients/{name}"][step]))
            optimizer.step()
        values |= {f"after/{decay}/{name}": np.float32(x.numpy()) for name, x in params.items()}
    return values


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())
