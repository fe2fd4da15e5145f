"""Recommends a model size and a run for a corpus, as changes of the config that prepared it."""

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
ROWS = (256, 128, 64, 32)  # rows per step
UPDATES = 10_000  # a run with fewer steps gets a smaller batch
HEAD = 64  # width of an attention head
SMALL_RATE, PUBLISHED_RATE = 5e-4, 1e-4


def choose_run(tokens: int, length: float) -> dict:
    """Recommends a run for a number of distinct training tokens: {tokens, size, steps, rows, passes}.

    length: of a row, the mean over the steps. rows: per step. passes: over the training tokens.

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
    fitting = [size for size in SIZES if TOKENS_PER_PARAMETER * parameters(size) <= tokens]
    all_rows = PASSES * tokens / length
    rows = next((rows for rows in ROWS if all_rows >= UPDATES * rows), ROWS[-1])
    steps = int(float(f"{min(STEPS, max(10, all_rows / rows)):.2g}"))
    size, passes = fitting[-1] if fitting else "tiny", steps * rows / all_rows * PASSES
    return {"tokens": tokens, "size": size, "steps": steps, "rows": rows, "passes": passes}


def parameters(size: str) -> int:
    """Returns the number of weights in the blocks: per layer 4 width**2 in attention, 8 width**2 in feed-forward."""
    layers, width = SIZES[size]
    return 12 * layers * width**2


def recommend(config, tokens: int, short_documents: bool) -> dict:
    """Returns `choose_run` and its `changes`: {key: value} of the config's keys that have another value in this run.

    Other models than BERT have no published sizes for little text. Their configs keep their own run, without `size`.
    """
    phases, total = configs.phases(config), configs.total_steps(config)
    if config.model.name != "bert":
        seen = sum((phase.stop - phase.first) * phase.batch * phase.length for phase in phases)
        return {"tokens": tokens, "steps": total, "passes": seen / tokens, "changes": {}}
    length = sum((phase.stop - phase.first) * phase.length for phase in phases) / total
    chosen = choose_run(tokens, length)
    keys = model_keys(config, chosen["size"]) | run_keys(config, chosen)
    if short_documents:
        keys["objective.pair_task"] = "none"
    now = configs.flatten(config)
    return chosen | {"changes": {key: value for key, value in keys.items() if now[key] != value}}


def model_keys(config, size: str) -> dict:
    """Returns the keys of a model of this size, and its learning rate if the config has another size.

    Sizes below base get the rate of ELECTRA-Small (arXiv:2003.10555).
    """
    layers, width = SIZES[size]
    if (config.model.layers, config.model.width) == SIZES[size]:
        return {}
    hidden = config.model.feed_forward * width // config.model.width
    keys = {"layers": layers, "width": width, "heads": width // HEAD, "feed_forward": hidden}
    rate = PUBLISHED_RATE if size in ("base", "large") else SMALL_RATE
    return {f"model.{key}": keys[key] for key in keys} | {"optimizer.learning_rate": rate}


def run_keys(config, chosen: dict) -> dict:
    """Returns the keys of a run with the config's phases, which keep their shares of the steps."""
    steps, total, every = chosen["steps"], configs.total_steps(config), config.log.every
    cadence = -(-min(5000, max(100, steps // 2000 * 100)) // every) * every
    keys, before = {}, 0
    for phase in configs.phases(config):
        last = max(before + 1, round(steps * phase.stop / total))
        keys[f"phases.{phase.name}.steps"] = last - before
        keys[f"phases.{phase.name}.batch"] = chosen["rows"]
        before = last
    keys["schedule.warmup"] = min(UPDATES, steps // 10)
    return keys | {"evaluate.every": cadence, "checkpoint.every": cadence}


def describe(recommendation: dict, name: str, overrides: list[str]) -> Iterator[str]:
    """Yields the recommendation as text: the run, the reason, how long it takes, and its command.

    name, overrides: of the config that prepared the store.
    """
    steps, tokens, passes = (recommendation[key] for key in ("steps", "tokens", "passes"))
    passes = f"{passes:.3g} passes over {tokens:,} training tokens"
    if size := recommendation.get("size"):
        rows, weights = recommendation["rows"], parameters(size)
        yield f"recommended start: the size of bert_{size}, {steps:,} steps of {rows} rows, {passes}"
        each = f"each of its {weights / 1e6:,.1f} M parameters without embeddings"
        advised = f"at least {TOKENS_PER_PARAMETER} are advised, and at most {PASSES} passes"
        yield f"  why: {tokens / weights:,.0f} training tokens for {each}; {advised}"
    else:
        yield f"the run of this config: {steps:,} steps, {passes}"
    if hours := recommendation.get("hours"):
        number, unit = (hours, "hours") if hours >= 1 else (60 * hours, "minutes")
        yield f"  how long: about {float(f'{number:.2g}'):,g} {unit} on this machine, by a few steps"
    changes = recommendation["changes"]
    typed = [each for each in overrides if each.partition("=")[0] not in changes]
    keys = [*typed, *(f"{key}={value}" for key, value in changes.items())]
    names = (f"runs/{Path(name).stem}{suffix}" for suffix in ("", *range(2, 1000)))
    workdir = next(directory for directory in names if not Path(directory).exists())
    parts = [f"bert-jax pretrain --config {shlex.quote(name)} --workdir {workdir}"]
    parts += [shlex.quote(f"--config.{key}") for key in keys]
    yield from ("", "    " + " \\\n    ".join(parts), "")
