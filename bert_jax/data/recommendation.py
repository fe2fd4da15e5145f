"""What a corpus calls for: a model and a run to begin with, as a command."""

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
TOKENS_A_PARAMETER = 10
PASSES = 40
STEPS = 1_000_000
ROWS = (256, 128, 64, 32)  # of a step
UPDATES = 10_000  # steps below which smaller batches are worth more than larger ones
LONG = 0.1  # share of the steps with rows of 512 tokens; those of the others have 128
TOKENS_A_ROW = 128 + LONG * (512 - 128)
SMALL_RATE = 5e-4
# Keys of a config that its store and rows follow from, and those of them that name places or cores of this machine.
OF_TEXT = ("corpus.", "filter.", "tokenizer.", "objective.pair_task", "objective.masking")
OF_MACHINE = ("corpus.workers", "tokenizer.path")


def run(tokens: int) -> dict:
    """{tokens, size, steps, rows a step, passes}: a run to begin with for a number of different training tokens.

    Size: the largest published one whose encoder, of 12 * layers * width**2 parameters, has at most one
    for every ten tokens. BERT-large, with 302M on 3.3 billion words (arXiv:1810.04805), is the published
    size with the fewest words a parameter, eleven; and base models have been found as good with 4 GB of
    text as with over 130 (CamemBERT, arXiv:1911.03894).

    Steps: at most 40 passes, but for rounding to two digits, and at most the published million. arXiv:1810.04805 calls
    its own million "approximately 40 epochs", taking every row for one of 512 tokens; here tokens are counted at both
    lengths. T5, an encoder-decoder, lost little by 64 passes, more by 256, much by 1,024 (arXiv:1910.10683, table 9).

    Batch: 256 rows as published, halved, down to 32, while the run would have fewer than 10,000 steps, the
    published warm-up. That one is a rule of thumb: with few tokens the number of updates is what is short.
    """
    fitting = [size for size in SIZES if TOKENS_A_PARAMETER * parameters(size) <= tokens]
    all_rows = PASSES * tokens / TOKENS_A_ROW
    rows = next((rows for rows in ROWS if all_rows >= UPDATES * rows), ROWS[-1])
    steps = int(float(f"{min(STEPS, max(10, all_rows / rows)):.2g}"))
    size, passes = fitting[-1] if fitting else "tiny", steps * rows / all_rows * PASSES
    return {"tokens": tokens, "size": size, "steps": steps, "rows": rows, "passes": passes}


def parameters(size: str) -> int:
    """Of the matrices of the blocks: 4 width**2 in attention, 8 width**2 in the feed-forward layers."""
    layers, width = SIZES[size]
    return 12 * layers * width**2


def recommend(config, tokens: int, short_documents: bool) -> dict:
    """`run`, and the `overrides` of the config of its size that make it one of this store."""
    chosen = run(tokens)
    keys = of_run(chosen) | of_text(config)
    if short_documents:
        keys["objective.pair_task"] = "none"
    return chosen | {"overrides": [f"{key}={value}" for key, value in keys.items()]}


def of_run(chosen: dict) -> dict:
    """The keys of a run. Rate: below base that of ELECTRA-Small (arXiv:2003.10555), else the published."""
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


def of_text(config) -> dict:
    """The keys that the store and its rows were asked for by, where they are not base's."""
    changed = configs.differences(configs.base(), config)
    return {
        key: now
        for key, (_, now) in changed.items()
        if key.startswith(OF_TEXT) and key not in OF_MACHINE
    }


def describe(recommendation: dict, store: str, vocabulary: str) -> Iterator[str]:
    """Lines for people: the advice, why, and the command to paste, with the places of these two."""
    size, steps, rows = (recommendation[name] for name in ("size", "steps", "rows"))
    yield (
        f"to begin with (a starting point: try a size smaller and one larger): bert_{size}, {steps:,} steps of {rows}"
        f" rows, {recommendation['passes']:.3g} passes over {recommendation['tokens']:,} training tokens"
    )
    yield (
        f"  because: its encoder of {parameters(size) / 1e6:,.1f} M parameters is the largest published one with"
        f" {TOKENS_A_PARAMETER} tokens a parameter, or the smallest of all; more than {PASSES} passes are not advised"
    )
    keys = [f"store={store}", *recommendation["overrides"]]
    keys += [f"tokenizer.path={vocabulary}"] if vocabulary else []
    parts = [f"bert-jax pretrain --config bert_{size} --workdir runs/bert_{size}"]
    parts += [shlex.quote(f"--config.{key}") for key in keys]
    yield from ("", "    " + " \\\n    ".join(parts), "")
