"""Recommends a model size and a run for a corpus, and prints them as a command."""

import shlex
from collections.abc import Iterator

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
LONG = 0.1  # share of the steps with rows of 512 tokens; the others have rows of 128
TOKENS_PER_ROW = 128 + LONG * (512 - 128)
SMALL_RATE = 5e-4
# Prefixes of the config keys that decide the store and its rows. Of these, OF_MACHINE suit this machine alone.
OF_TEXT = ("corpus.", "filter.", "tokenizer.", "objective.", "task.")
OF_MACHINE = ("corpus.workers", "tokenizer.path")


def choose_run(tokens: int) -> dict:
    """Recommends a run for a number of distinct training tokens: {tokens, size, steps, rows, passes}.

    rows: per step. passes: over the training tokens.

    Size: the largest published size with at least ten training tokens for each parameter of the encoder's blocks
    (12 * layers * width**2). BERT-large, with 302M parameters and 3.3 billion words (arXiv:1810.04805), has the fewest
    words per parameter of the published sizes: eleven. Base models trained on 4 GB of text were as good as those
    trained on over 130 GB (CamemBERT, arXiv:1911.03894).

    Steps: at most 40 passes, up to rounding to two digits, and at most the published million. arXiv:1810.04805 calls
    its million steps "approximately 40 epochs", counting 512 tokens for every row; here rows of 128 tokens count as
    such. T5, an encoder-decoder, lost little with 64 passes, more with 256 and much with 1,024 (arXiv:1910.10683,
    table 9).

    Batch: the published 256 rows, halved down to 32 while the run has fewer than 10,000 steps, the published warm-up.
    This is a rule of thumb: with few tokens, the number of updates is the limit.
    """
    fitting = [size for size in SIZES if TOKENS_PER_PARAMETER * parameters(size) <= tokens]
    all_rows = PASSES * tokens / TOKENS_PER_ROW
    rows = next((rows for rows in ROWS if all_rows >= UPDATES * rows), ROWS[-1])
    steps = int(float(f"{min(STEPS, max(10, all_rows / rows)):.2g}"))
    size, passes = fitting[-1] if fitting else "tiny", steps * rows / all_rows * PASSES
    return {"tokens": tokens, "size": size, "steps": steps, "rows": rows, "passes": passes}


def parameters(size: str) -> int:
    """Returns the number of weights in the blocks: per layer 4 width**2 in attention, 8 width**2 in feed-forward."""
    layers, width = SIZES[size]
    return 12 * layers * width**2


def recommend(config, tokens: int, short_documents: bool) -> dict:
    """Returns `choose_run` and its `overrides`: the config overrides, as KEY=VALUE, for this run on this store."""
    chosen = choose_run(tokens)
    keys = run_overrides(chosen) | text_overrides(config)
    if short_documents:
        keys["objective.pair_task"] = "none"
    return chosen | {"overrides": [f"{key}={value}" for key, value in keys.items()]}


def run_overrides(chosen: dict) -> dict:
    """Returns the overrides of a run. Sizes below base get the learning rate of ELECTRA-Small (arXiv:2003.10555)."""
    size, steps, rows = (chosen[name] for name in ("size", "steps", "rows"))
    long, cadence = max(1, round(LONG * steps)), min(5000, max(100, steps // 2000 * 100))
    keys = {
        "phases.short.steps": steps - long,
        "phases.long.steps": long,
        "phases.short.batch": rows,
        "phases.long.batch": rows,
        "schedule.warmup": min(UPDATES, steps // 10),
        "evaluate.every": cadence,
        "checkpoint.every": cadence,
    }
    return keys if size in ("base", "large") else keys | {"optimizer.learning_rate": SMALL_RATE}


def text_overrides(config) -> dict:
    """Returns the keys that decide the store and its rows, if they differ from their defaults."""
    return {
        key: now
        for key, (_, now) in configs.changes(config).items()
        if key.startswith(OF_TEXT) and key not in OF_MACHINE
    }


def describe(recommendation: dict, store: str, vocabulary: str) -> Iterator[str]:
    """Yields the recommendation as text: the run, the reason, and a command with the given store and vocabulary."""
    size, steps, rows = (recommendation[name] for name in ("size", "steps", "rows"))
    tokens, weights = recommendation["tokens"], parameters(size)
    yield (
        f"recommended start: bert_{size}, {steps:,} steps of {rows} rows,"
        f" {recommendation['passes']:.3g} passes over {tokens:,} training tokens"
    )
    fits = TOKENS_PER_PARAMETER * weights <= tokens
    which = "largest published size with at least" if fits else "smallest one, with fewer than"
    yield (
        f"  why: the {which} {TOKENS_PER_PARAMETER} training tokens for each of its {weights / 1e6:,.1f} M"
        f" parameters without embeddings; more than {PASSES} passes are not advised"
    )
    yield "  how long: `bert-jax benchmark` with the same --config options times a step"
    keys = [f"store={store}", *recommendation["overrides"]]
    keys += [f"tokenizer.path={vocabulary}"] if vocabulary else []
    parts = [f"bert-jax pretrain --config bert_{size} --workdir runs/bert_{size}"]
    parts += [shlex.quote(f"--config.{key}") for key in keys]
    yield from ("", "    " + " \\\n    ".join(parts), "")
