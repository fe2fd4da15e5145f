"""The batch at a step, as the model will see it; and the batches of many steps, saved."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.data import batch, batch_files
from bert_jax.data.feed import StoreFeed, import_stream, open_feed
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer

OPTIONS = [
    cli.CONFIG,
    cli.option("--step", "the step whose batch is shown", type=int),
    cli.option("--rows", "rows to show; default: %(default)s", type=cli.positive, default=4),
    cli.option("--steps", "the steps A to B - 1, whose batches are saved", metavar="A:B"),
    cli.option("--save", "to save batches to, with --steps", type=cli.place, metavar="DIR"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    showing = options.step is not None
    if showing == (options.steps is not None) or showing == (options.save is not None):
        raise BadInput("inspect: expected --step N, or --steps A:B and --save DIR")
    config = cli.load_config(options, overrides)
    if showing:
        values = inspect(config, options.step, options.rows, cli.tell)
        head = "  ".join(f"{key} {value}" for key, value in values.items() if key != "rows")
        return cli.show(options, values, "\n".join([head, *values["rows"]]))
    first, _, last = options.steps.partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        raise BadInput(f"--steps {options.steps}: expected A:B, the steps A to B - 1")
    values = save(config, int(first), int(last), options.save, cli.tell)
    go_on = f"to train on them: --config.batches={values['saved']}"
    return cli.show(options, values, f"{values['bytes'] / 1e6:,.1f} MB; {go_on}")


def inspect(config: ConfigDict, step: int, rows: int, log=print) -> dict:
    """The batch that step `step` trains on: its phase, sha256, real_token_share, pair_ratio, pairs_per_row,
    masked_per_row, and the texts of its rows, pair by pair."""
    total = configs.total_steps(config)
    if not 0 <= step < total:
        raise BadInput(f"--step {step}: the run has the steps 0 to {total - 1}")
    feed = open_feed(config) if config.batches else prepared(config, log)
    words = tokenizer.load(feed.path / "tokenizer")
    phase = next(phase for phase in configs.phases(config) if step < phase.last)
    arrays = next(feed.train(phase, step, step + 1))
    weights = arrays["pair_weights"].sum()
    return {
        "step": step,
        "phase": phase.name,
        "sha256": batch.digest(arrays),
        "real_token_share": float((arrays["sequence_ids"] > 0).mean()),
        "pair_ratio": float(arrays["pair_labels"].sum() / weights) if weights else None,
        "pairs_per_row": float(arrays["sequence_ids"].max(axis=1).mean()),
        "masked_per_row": float(arrays["masked_weights"].sum() / phase.batch),
        "rows": [*chain(*(show(arrays, row, words) for row in range(min(rows, phase.batch))))],
    }


def save(config: ConfigDict, first: int, last: int, directory: Path, log: Callable) -> dict:
    """Saves the batches of steps first..last-1 for machines without TensorFlow; see batch_files.save."""
    batch_files.check(config, first, last, directory)
    if config.batches:
        raise BadInput(f"config.batches={config.batches}: batches are saved from the store")
    feed = prepared(config, log)
    feed.check(first)
    if config.verify_store:
        feed.check_hashes()
    return batch_files.save(feed, first, last, directory, log)


def prepared(config: ConfigDict, log: Callable) -> StoreFeed:
    """The store of the config, prepared first if it is missing."""
    from bert_jax.data import prepare

    import_stream()
    prepare.prepare(config, log)
    return StoreFeed(config, prepare.open_matching(config))


def show(arrays: dict, row: int, words) -> list[str]:
    """The pieces of each pair of a row; a masked position reads {shown<target}, or {target} where it was kept."""
    used = arrays["masked_weights"][row] > 0
    positions = arrays["masked_positions"][row][used]
    targets = dict(zip(positions, arrays["masked_targets"][row][used], strict=True))
    owners, texts = arrays["sequence_ids"][row], []
    for pair in range(owners.max()):
        pieces = []
        for place in np.flatnonzero(owners == pair + 1):
            shown = words.readable(arrays["tokens"][row, place])
            if place in targets:
                target = words.readable(targets[place])
                shown = f"{{{target}}}" if shown == target else f"{{{shown}<{target}}}"
            pieces.append(shown)
        weight, label = arrays["pair_weights"][row, pair], arrays["pair_labels"][row, pair]
        number = f".{pair + 1}" if arrays["pair_weights"].shape[1] > 1 else ""
        texts.append(f"row {row}{number}{f' label {label}' if weight else ''}: {' '.join(pieces)}")
    return texts
