"""What a corpus calls for: a model and a run to begin with, as a command."""

import shlex
from collections.abc import Iterator
from typing import NamedTuple

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
ROWS, FEWEST_ROWS = 256, 32
UPDATES = 10_000  # steps below which smaller batches are worth more than larger ones
LENGTHS = {"short": (128, 0.9), "long": (512, 0.1)}  # tokens a row, share of the steps
SMALL_RATE = 5e-4


class Run(NamedTuple):
    size: str
    steps: int
    rows: int  # a step
    passes: float  # over the training tokens


def run(tokens: int) -> Run:
    """Size, steps and batch to begin with for a number of different training tokens.

    Size: the largest published one whose encoder, of 12 * layers * width**2 parameters, has at most one
    for every ten tokens. BERT-large, with 302M on 3.3 billion words (arXiv:1810.04805), is the published
    size with the fewest words a parameter, eleven; and base models have been found as good with 4 GB of
    text as with over 130 (CamemBERT, arXiv:1911.03894).

    Steps: at most 40 passes and at most the published million. arXiv:1810.04805 calls its own million "approximately
    40 epochs", taking every row for one of 512 tokens; here tokens are counted at both lengths. T5, an
    encoder-decoder, lost little by 64 passes, more by 256 and much by 1,024 (arXiv:1910.10683, table 9).

    Batch: 256 rows as published, halved, down to 32, while the run would have fewer than 10,000 steps, the
    published warm-up. That one is a rule of thumb: with few tokens the number of updates is what is short.
    """
    largest = tokens / TOKENS_A_PARAMETER
    fitting = [name for name, shape in SIZES.items() if parameters(*shape) <= largest]
    rows = ROWS
    while rows > FEWEST_ROWS and PASSES * tokens < UPDATES * tokens_a_step(rows):
        rows //= 2
    steps = two_digits(min(STEPS, max(10, PASSES * tokens / tokens_a_step(rows))))
    passes = steps * tokens_a_step(rows) / tokens
    return Run(fitting[-1] if fitting else "tiny", steps, rows, passes)


def parameters(layers: int, width: int) -> int:
    """Of the matrices of the blocks: 4 width**2 in attention, 8 width**2 in the feed-forward layers."""
    return 12 * layers * width**2


def tokens_a_step(rows: int) -> float:
    return rows * sum(length * share for length, share in LENGTHS.values())


def two_digits(number: float) -> int:
    """Rounded down to two digits."""
    unit = 10 ** max(0, len(str(int(number))) - 2)
    return int(number) // unit * unit


def recommend(config, report: dict) -> dict:
    """{size, layers, width, steps, rows, passes, reason, config, given_vocabulary, overrides}: a starting point."""
    tokens = report["train"]["tokens"]
    size, steps, rows, passes = run(tokens)
    layers, width = SIZES[size]
    few = f"{tokens:,} training tokens are few even for the smallest published size"
    fits = (
        f"{tokens:,} training tokens; an encoder of {parameters(layers, width) / 1e6:,.1f} M parameters is the largest"
        f" published one with {TOKENS_A_PARAMETER} tokens a parameter"
    )
    most = "the published number" if steps == STEPS else f"no more than {PASSES} are advised"
    reason = fits if tokens >= TOKENS_A_PARAMETER * parameters(layers, width) else few
    short = any(each["name"] == "short_documents" for each in report["warnings"])
    objective = {
        "objective.pairs": "none" if short else config.objective.pairs,
        "objective.masking": config.objective.masking,
    }
    usual = configs.flatten(configs.base())
    objective = {key: value for key, value in objective.items() if value != usual[key]}
    overrides = of_run(size, steps, rows) | of_store(config) | objective
    return {
        "size": size,
        "layers": layers,
        "width": width,
        "steps": steps,
        "rows": rows,
        "passes": passes,
        "reason": f"{reason}; {steps:,} steps of {rows} rows are {passes:.3g} passes ({most})",
        "config": f"bert_{size}",
        "given_vocabulary": bool(config.tokenizer.path),
        "overrides": [f"{key}={value}" for key, value in overrides.items()],
    }


def of_run(size: str, steps: int, rows: int) -> dict:
    """The keys of a run. Rate: below base that of ELECTRA-Small (arXiv:2003.10555), else the published."""
    long = max(1, round(steps * LENGTHS["long"][1]))
    keys = {"phases.short.steps": steps - long, "phases.long.steps": long}
    keys |= {f"phases.{name}.batch": rows for name in LENGTHS}
    keys["schedule.warmup"] = min(UPDATES, steps // 10)
    if size not in ("base", "large"):
        keys["optimizer.learning_rate"] = SMALL_RATE
    cadence = max(100, steps // 2000 * 100)
    if cadence < 5000:
        keys |= {"evaluate.every": cadence, "checkpoint.every": cadence}
    return keys


def of_store(config) -> dict:
    """The keys that made the store and are not base's; but no place of this machine beside the corpus."""
    given = bool(config.tokenizer.path)
    mine = {"corpus.workers", "corpus.data_dir", "tokenizer.path"}
    mine |= {"tokenizer.kind", "tokenizer.size", "tokenizer.sample"} if given else set()
    changed = configs.differences(configs.base(), config)
    groups = ("corpus", "filter", "tokenizer")
    return {
        key: now
        for key, (_, now) in changed.items()
        if key.partition(".")[0] in groups and key not in mine
    }


def describe(recommendation: dict, store: str, vocabulary: str) -> Iterator[str]:
    """Lines for people: the advice, why, and the command to paste, with these two places."""
    yield (
        "to begin with (a starting point: try a size smaller and one larger):"
        f" {recommendation['config']}, {recommendation['layers']} layers of width {recommendation['width']},"
        f" {recommendation['steps']:,} steps of {recommendation['rows']} rows"
    )
    yield f"  because: {recommendation['reason']}"
    name = recommendation["config"]
    keys = [f"store={store}", *recommendation["overrides"]]
    if recommendation["given_vocabulary"]:
        keys.append(f"tokenizer.path={vocabulary}")
    parts = [f"bert-jax pretrain --config {name} --workdir runs/{name}"]
    parts += [shlex.quote(f"--config.{key}") for key in keys]
    yield ""
    yield from (f"    {part} \\" for part in parts[:-1])
    yield from (f"    {parts[-1]}", "")
