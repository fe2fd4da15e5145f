"""Writes stable_adamw.npz: ten steps of torch-optimi's StableAdamW with fully decoupled weight decay, in float64.

python tests/golden/make_stable_adamw.py        (needs torch and torch-optimi; the file has their `versions`)

    rates[10]                                 the learning rate of each step; `settings` has the others (JSON)
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
UNDECAYED = "bias", "scale"
SETTINGS = dict(beta1=0.9, beta2=0.98, epsilon=1e-6)
RATES = np.float32([0, 0.02, 0.04, 0.05, 0.05, 0.05, 0.03, 0.02, 0.01, 0.001])
DECAYS = "0", "0.0009"


def make() -> dict:
    """Returns all arrays of the file. The gradients grow tenfold in the middle, and some words have none."""
    draw = np.random.default_rng(0)
    sizes = np.array([1, 1, 1, 10, 1, 1, 0.1, 3, 0, 1])
    versions = {name: version(name) for name in ("torch", "torch-optimi")}
    values = {"versions": json.dumps(versions), "settings": json.dumps(SETTINGS), "rates": RATES}
    for name, shape in SHAPES.items():
        values[f"before/{name}"] = draw.normal(size=shape).astype(np.float32)
        gradients = draw.normal(size=(len(RATES), *shape)) * sizes.reshape(-1, *[1] * len(shape))
        values[f"gradients/{name}"] = gradients.astype(np.float32)
    values["gradients/words"][:5, 2:] = 0
    for decay in DECAYS:
        for name, array in train(values, float(decay)).items():
            values[f"after/{decay}/{name}"] = array.astype(np.float32)
    return values


def train(values: dict, decay: float) -> dict:
    """Returns {name: parameter} after the ten steps."""
    params = {name: torch.tensor(np.float64(values[f"before/{name}"])) for name in SHAPES}
    groups = [
        dict(params=[x], weight_decay=decay * (name not in UNDECAYED)) for name, x in params.items()
    ]
    chosen = dict(lr=float(RATES.max()), betas=(SETTINGS["beta1"], SETTINGS["beta2"]))
    chosen |= dict(eps=SETTINGS["epsilon"], decouple_lr=True, triton=False)
    optimizer = optimi.StableAdamW(groups, **chosen)
    for step, rate in enumerate(RATES):
        for group, name in zip(optimizer.param_groups, SHAPES, strict=True):
            group["lr"] = float(rate)
            params[name].grad = torch.tensor(np.float64(values[f"gradients/{name}"][step]))
        optimizer.step()
    return {name: tensor.numpy() for name, tensor in params.items()}


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())
