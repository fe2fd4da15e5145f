"""Recommends a model size and a run for a corpus, as changes of the config that prepared it."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path

from bert_jax import config as configs

# The published sizes (arXiv:1908.08962, arXiv:1810.04805): layers and width, smallest first.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
TOKENS_PER_PARAMETER = 10
PASSES = 40
STEPS = 1_000_000
ROWS = (256, 128, 64, 32)  # per step
UPDATES = 10_000  # a run with fewer steps gets a smaller batch
HEAD = 64  # width of an attention head
SMALL_RATE = 5e-4
PUBLISHED_RATE = 1e-4


def choose_run(tokens: int, length: float) -> dict:
    """Recommends a run for a number of distinct training tokens: {tokens, size, steps, rows, passes}.

    length: of a row in tokens, the mean over the steps.

    Of the result, `rows` are those of one step, and `passes` are over the training tokens.

    Size: the largest published size with at least ten training tokens for each parameter of the encoder's blocks
    (12 * layers * width**2). BERT-large, with 302M parameters and 3.3 billion words (arXiv:1810.04805), has the fewest
    words per parameter of the published sizes: eleven. Base models trained on 4 GB of text were as good as those
    trained on over 130 GB (CamemBERT, arXiv:1911.03894).

    Steps: at most 40 passes, up to rounding to two digits, and at most the published million. arXiv:1810.04805 calls
    its million steps "approximately 40 epochs", counting 512 tokens for every row; here rows count with their
    length. T5, an encoder-decoder, lost little with 64 passes, more with 256 and much with 1,024 (arXiv:1910.10683,
    table 9).

    Batch: the published 256 rows, halved down to 32 while the run has fewer than 10,000 steps, the published warm-up.
    This is a rule of thumb: with few tokens, the number of updates is the limit.
    """
    size = "tiny"
    for name in SIZES:
        if TOKENS_PER_PARAMETER * parameters(name) <= tokens:
            size = name
    all_rows = PASSES * tokens / length
    rows = next((rows for rows in ROWS if all_rows >= UPDATES * rows), ROWS[-1])
    steps = min(STEPS, max(10, all_rows / rows))
    steps = int(float(f"{steps:.2g}"))
    passes = steps * rows / all_rows * PASSES
    return {"tokens": tokens, "size": size, "steps": steps, "rows": rows, "passes": passes}


def parameters(size: str) -> int:
    """Returns the number of weights in the blocks: per layer 4 width**2 in attention, 8 width**2 in feed-forward."""
    layers, width = SIZES[size]
    return 12 * layers * width**2


def recommend(config, tokens: int, short_documents: bool) -> dict:
    """Returns `choose_run` and its `changes`: {key: value} of the config's keys that have another value in this run.

    Other models than BERT have no published sizes for little text. Their configs keep their own run, without `size`.
    """
    total = configs.total_steps(config)
    total_length = 0  # of one row a step
    seen_tokens = 0
    for phase in configs.phases(config):
        positions = (phase.stop - phase.first) * phase.length
        total_length += positions
        seen_tokens += positions * phase.batch
    if config.model.name != "bert":
        return {"tokens": tokens, "steps": total, "passes": seen_tokens / tokens, "changes": {}}
    run = choose_run(tokens, total_length / total)
    keys = model_keys(config, run["size"]) | run_keys(config, run)
    if short_documents:
        keys["task.pair_task"] = "none"
    now = configs.flatten(config)
    run["changes"] = {key: value for key, value in keys.items() if now[key] != value}
    return run


def model_keys(config, size: str) -> dict:
    """Returns the keys of a model of this size, and its learning rate if the config has another size.

    Sizes below base get the rate of ELECTRA-Small (arXiv:2003.10555).
    """
    layers, width = SIZES[size]
    if (config.model.layers, config.model.width) == SIZES[size]:
        return {}
    return {
        "model.layers": layers,
        "model.width": width,
        "model.heads": width // HEAD,
        "model.feed_forward": config.model.feed_forward * width // config.model.width,
        "optimizer.learning_rate": PUBLISHED_RATE if size in ("base", "large") else SMALL_RATE,
    }


def run_keys(config, run: dict) -> dict:
    """Returns the keys of a run with the config's phases, which keep their shares of the steps."""
    steps = run["steps"]
    total = configs.total_steps(config)
    keys = {}
    first = 0
    for phase in configs.phases(config):
        stop = max(first + 1, round(steps * phase.stop / total))
        keys[f"phases.{phase.name}.steps"] = stop - first
        keys[f"phases.{phase.name}.batch"] = run["rows"]
        first = stop
    keys["schedule.warmup"] = min(UPDATES, steps // 10)
    reports = math.ceil(min(5000, max(100, steps // 2000 * 100)) / config.log.every)
    for key in ("evaluate.every", "checkpoint.every"):
        keys[key] = reports * config.log.every
    return keys


def describe(recommendation: dict, name: str, overrides: list[str]) -> Iterator[str]:
    """Yields the recommendation as text: the run, the reason, how long it takes, and its command.

    name, overrides: of the config that prepared the store.
    """
    tokens = recommendation["tokens"]
    passes = f"{recommendation['passes']:.3g} passes over {tokens:,} training tokens"
    steps = f"{recommendation['steps']:,} steps"
    if size := recommendation.get("size"):
        weights = parameters(size)
        yield (
            f"recommended start: the size of bert_{size}, {steps} of {recommendation['rows']} rows,"
            f" {passes}"
        )
        yield (
            f"  why: {tokens / weights:,.0f} training tokens for each of its {weights / 1e6:,.1f} M parameters"
            f" without embeddings; at least {TOKENS_PER_PARAMETER} are advised, and at most {PASSES} passes"
        )
    else:
        yield f"the run of this config: {steps}, {passes}"
    if hours := recommendation.get("hours"):
        time = hours
        unit = "hours"
        if hours < 1:
            time = 60 * hours
            unit = "minutes"
        yield f"  how long: about {float(f'{time:.2g}'):,g} {unit} on this machine, by a few steps"
    changes = recommendation["changes"]
    parts = [f"bert-jax pretrain --config {shlex.quote(name)} --workdir {free_workdir(name)}"]
    for override in overrides:
        key, _, _ = override.partition("=")
        if key not in changes:
            parts.append(shlex.quote(f"--config.{override}"))
    for key, value in changes.items():
        parts.append(shlex.quote(f"--config.{key}={value}"))
    yield from ("", "    " + " \\\n    ".join(parts), "")


def free_workdir(name: str) -> str:
    """Returns runs/NAME, with a number if that exists, for a config whose name or path is given."""
    workdir = f"runs/{Path(name).stem}"
    number = 1
    while Path(workdir).exists():
        number += 1
        workdir = f"runs/{Path(name).stem}{number}"
    return workdir
