"""`inspect`: shows the batch of a step as the model reads it, or saves the batches of many steps."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.data import batch, batch_files
from bert_jax.errors import BadInput
from bert_jax.objectives import mlm_batch
from bert_jax.tasks.feed import StoreFeed, check_unscored, import_stream, open_feed
from bert_jax.tokenizers import tokenizer as tokenizers

MARKS = (
    "{a<b}: b is to be predicted, the model sees a; {b}: b is to be predicted, and seen.\n"
    "label 0: the second sentence follows the first (sop: in order); 1: a random one (sop: swapped)"
)
OPTIONS = [
    cli.CONFIG,
    cli.option("--step", "step whose batch to show", type=int),
    cli.option("--rows", "rows to show; default: %(default)s", type=cli.positive, default=4),
    cli.option("--steps", "steps A to B - 1, whose batches to save", metavar="A:B"),
    cli.option("--save", "where to save, with --steps", type=cli.to_path, metavar="DIR"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    is_show = options.step is not None
    if is_show == (options.steps is not None) or is_show == (options.save is not None):
        raise BadInput("inspect: expected either --step N, or --steps A:B and --save DIR")
    config = cli.load_config(options, overrides)
    if is_show:
        values = inspect(config, options.step, options.rows, cli.log_progress)
        head = "  ".join(f"{key} {value}" for key, value in values.items() if key != "rows")
        return cli.show(options, values, "\n".join([head, *values["rows"], MARKS]))
    first, _, last = options.steps.partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        raise BadInput(f"--steps {options.steps}: expected A:B, the steps A to B - 1")
    values = save(config, int(first), int(last), options.save, cli.log_progress)
    hint = f"to train on them: --config.batches={values['saved']}"
    return cli.show(options, values, f"{values['bytes'] / 1e6:,.1f} MB; {hint}")


def inspect(config: ConfigDict, step: int, rows: int, log=print) -> dict:
    """Returns the batch of a step: its phase, sha256, real_token_share, pair_ratio, pairs_per_row, masked_per_row,
    and the texts of the first rows, sequence by sequence. A task without pairs or masks has none."""
    total = configs.total_steps(config)
    if not 0 <= step < total:
        raise BadInput(f"--step {step}: expected a step from 0 to {total - 1}")
    feed = open_feed(config) if config.batches else prepare_store(config, log)
    tokenizer = tokenizers.load(feed.path / "tokenizer")
    phase = next(phase for phase in configs.phases(config) if step < phase.last)
    arrays = next(feed.train(phase, step, step + 1))
    sha256, arrays = batch.digest(arrays), absent(arrays) | arrays
    weights = arrays["pair_weights"].sum()
    return {
        "step": step,
        "phase": phase.name,
        "sha256": sha256,
        "real_token_share": float((arrays["sequence_ids"] > 0).mean()),
        "pair_ratio": float(arrays["pair_labels"].sum() / weights) if weights else None,
        "pairs_per_row": float(arrays["sequence_ids"].max(axis=1).mean()),
        "masked_per_row": float(arrays["masked_weights"].sum() / phase.batch),
        "rows": [*chain(*(show(arrays, row, tokenizer) for row in range(min(rows, phase.batch))))],
    }


def save(config: ConfigDict, first: int, last: int, directory: Path, log: Callable) -> dict:
    """Saves the batches of steps first to last - 1, for machines without TensorFlow; see batch_files.save."""
    batch_files.check(config, first, last, directory)
    if config.batches:
        raise BadInput(f"config.batches={config.batches}: must be empty, --save reads the store")
    check_unscored(config)
    feed = prepare_store(config, log)
    if config.verify_store:
        feed.check_hashes()
    return batch_files.save(feed, first, last, directory, log)


def prepare_store(config: ConfigDict, log: Callable) -> StoreFeed:
    """Opens the store of the config; prepares it first if it is missing."""
    from bert_jax.data import prepare

    import_stream()
    return StoreFeed(config, prepare.open_or_prepare(config, log))


def absent(arrays: dict) -> dict:
    """Returns the arrays of masks and pairs for a batch whose task may have none: no masked position, no pair."""
    rows, length = arrays["tokens"].shape
    shapes = mlm_batch.shapes(rows, length, 0, arrays["cls_positions"].shape[1])
    return {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}


def show(arrays: dict, row: int, tokenizer) -> list[str]:
    """Returns the pieces of each sequence in a row.

    A masked position is {input<target}, or {target} if it is unchanged.
    """
    used = arrays["masked_weights"][row] > 0
    positions = arrays["masked_positions"][row][used]
    targets = dict(zip(positions, arrays["masked_targets"][row][used], strict=True))
    owners, texts = arrays["sequence_ids"][row], []
    for pair in range(owners.max()):
        pieces = []
        for position in np.flatnonzero(owners == pair + 1):
            shown = tokenizer.readable(arrays["tokens"][row, position])
            if position in targets:
                target = tokenizer.readable(targets[position])
                shown = f"{{{target}}}" if shown == target else f"{{{shown}<{target}}}"
            pieces.append(shown)
        weight, label = arrays["pair_weights"][row, pair], arrays["pair_labels"][row, pair]
        number = f".{pair + 1}" if arrays["pair_weights"].shape[1] > 1 else ""
        texts.append(f"row {row}{number}{f' label {label}' if weight else ''}: {' '.join(pieces)}")
    return texts
