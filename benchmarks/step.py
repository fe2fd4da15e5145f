"""Tokens a second of a pretraining step on synthetic full rows, with the program that pretrain runs.

python benchmarks/step.py --layers 4 --width 256 --rows 32 [--length 128] [--config.KEY=VALUE ...]

Masked-LM and NSP heads, Adam, clipping, dropout 0.1. Prints one JSON line with the median step.
"""

import argparse
import json
import statistics
import time

import jax
import numpy as np

from bert_jax import batch, build, config, runtime, sharding
from bert_jax.__main__ import restart_with_huge_pages
from bert_jax.objectives.base import Vocabulary

VOCABULARY = Vocabulary(30522, pad=0, unk=100, cls=101, sep=102, mask=103)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        ("layers", 12),
        ("width", 768),
        ("rows", 8),
        ("length", 128),
        ("steps", 7),
    ):
        options.add_argument(f"--{name}", type=int, default=default)
    options, more = options.parse_known_args()
    settings = {
        "model.layers": options.layers,
        "model.width": options.width,
        "model.heads": max(1, options.width // 64),
        "model.positions": max(512, options.length),
        "phases.main.length": options.length,
        "phases.main.batch": options.rows,
        "phases.main.predictions": round(0.15 * options.length) + 1,
    }
    overrides = [f"{key}={value}" for key, value in settings.items()]
    overrides += [key.removeprefix("--config.") for key in more]
    seconds = measure(runtime.start(config.load("base", overrides)), options.steps)
    values = vars(options) | {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "step_seconds": seconds,
        "tokens_per_second": options.rows * options.length / seconds,
    }
    print(json.dumps(values))


def measure(settings, steps: int) -> float:
    """The median of some steps, in seconds, after two that are not counted."""
    mesh = sharding.make_mesh(settings.mesh)
    trainer = build.build(settings, mesh, VOCABULARY)
    (phase,) = config.phases(settings)
    arrays = batch.synthetic(
        phase.batch, phase.length, phase.predictions, VOCABULARY.size, sequences=phase.sequences
    )
    rows = sharding.to_devices(mesh, arrays, np.arange(phase.batch), phase.batch)
    state, seconds = trainer.initialize(), []
    for _ in range(steps + 2):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(trainer.train[phase.name](state, rows))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


if __name__ == "__main__":
    restart_with_huge_pages()
    main()
