"""Writes stable_adamw.npz: ten steps of torch-optimi's StableAdamW with fully decoupled weight decay, in float64.

python tests/golden/make_stable_adamw.py        (needs torch and torch-optimi; the file has their `versions`)

    rates[10], betas[2], decay                        the learning rate of each step; biases and scales do not decay
    before/NAME, gradients/NAME[10, ...], after/NAME  float32; some words have no gradient in the first steps
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import optimi
import torch

FILE = Path(__file__).parent / "stable_adamw.npz"
SHAPES = {"kernel": (6, 5), "bias": (5,), "scale": (5,), "words": (7, 3)}
RATES = np.float32([0, 0.02, 0.04, 0.05, 0.05, 0.05, 0.03, 0.02, 0.01, 0.001])
SIZES = [1, 1, 1, 10, 1, 1, 0.1, 3, 0, 1]  # of the gradients
BETAS, EPSILON, DECAY = (0.9, 0.98), 1e-6, 9e-4


def make() -> dict:
    """Returns all arrays of the file."""
    draw, names = np.random.default_rng(0), ("torch", "torch-optimi")
    values = {"versions": np.array(json.dumps({name: version(name) for name in names}))}
    values |= {"rates": RATES, "betas": np.array(BETAS), "decay": np.array(DECAY)}
    groups = []
    for name, shape in SHAPES.items():
        values[f"before/{name}"] = draw.normal(size=shape).astype(np.float32)
        values[f"gradients/{name}"] = np.float32([x * draw.normal(size=shape) for x in SIZES])
        param = torch.tensor(np.float64(values[f"before/{name}"]))
        decay = 0 if name in ("bias", "scale") else DECAY
        groups.append({"name": name, "params": [param], "weight_decay": decay})
    values["gradients/words"][:5, 2:] = 0
    keys = dict(lr=float(RATES.max()), betas=BETAS, eps=EPSILON, decouple_lr=True, triton=False)
    optimizer = optimi.StableAdamW(groups, **keys)
    for step, rate in enumerate(RATES):
        for group in optimizer.param_groups:
            group["lr"], gradients = float(rate), values[f"gradients/{group['name']}"]
            group["params"][0].grad = torch.tensor(np.float64(gradients[step]))
        optimizer.step()
    after = {group["name"]: group["params"][0].numpy() for group in optimizer.param_groups}
    return values | {f"after/{name}": array.astype(np.float32) for name, array in after.items()}


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())
