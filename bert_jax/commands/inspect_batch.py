"""`inspect`: shows the batch of a step as the model reads it, or saves the batches of many steps."""

import dataclasses
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.data import batch, batch_files
from bert_jax.errors import BadInput
from bert_jax.step import real_token_share
from bert_jax.storage.atomic import check_free
from bert_jax.tasks.feed import check_unscored, open_feed, prepare_feed
from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers import tokenizer as tokenizers

# {value of `describe`: what the marks of `show` mean that come with it}
MARKS = {
    "masked_per_row": "{a<b}: b is to be predicted, the model sees a; {b}: b is to be predicted, and seen.",
    "pair_ratio": "label 0: the second sentence follows the first (sop: in order); 1: a random one (sop: swapped)",
}
OPTIONS = [
    cli.CONFIG,
    cli.option("--step", "step whose batch to show", type=int),
    cli.option("--rows", "rows to show; default: %(default)s", type=cli.positive, default=4),
    cli.option("--steps", "steps A to B - 1, whose batches to save", metavar="A:B"),
    cli.path("--save", "where to save, with --steps", metavar="DIR"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    is_show = options.step is not None
    if is_show == (options.steps is not None) or is_show == (options.save is not None):
        raise BadInput("inspect: expected either --step N, or --steps A:B and --save DIR")
    config = cli.load_config(options, overrides)
    if is_show:
        values = inspect(config, options.step, options.rows, cli.log)
        head = "  ".join(f"{key} {value}" for key, value in values.items() if key != "rows")
        marks = [mark for key, mark in MARKS.items() if values[key] is not None]
        return cli.show(options, values, "\n".join([head, *values["rows"], *marks]))
    first, _, last = options.steps.partition(":")
    steps = [int(number) if number.isdecimal() else -1 for number in (first, last)]
    values = save(config, *steps, options.save, cli.log)
    size = f"{values['bytes'] / 1e6:,.1f} MB"
    text = f"{size}; to train on them: --config.batches={values['saved']}"
    return cli.show(options, values, text)


def inspect(config: ConfigDict, step: int, rows: int, log=print) -> dict:
    """Returns the batch of a step: its phase, sha256, real_token_share, pair_ratio, pairs_per_row, masked_per_row,
    and the texts of the first rows, sequence by sequence; see `describe`."""
    total = configs.total_steps(config)
    if not 0 <= step < total:
        raise BadInput(f"--step {step}: expected a step from 0 to {total - 1}")
    feed = open_feed(config) if config.batches else prepare_feed(config, log)
    tokenizer = tokenizers.load(feed.path / "tokenizer")
    phase = configs.phase_at(config, step + 1)
    arrays = next(feed.train(phase, step, step + 1))
    return {
        "step": step,
        "phase": phase.name,
        "sha256": batch.digest(arrays),
        **describe(arrays, rows, tokenizer),
    }


def describe(arrays: dict, rows: int, tokenizer) -> dict:
    """Returns real_token_share, pair_ratio, pairs_per_row, and masked_per_row of a batch of any task, and as `rows` the
    texts of its first rows, see `show`. The numbers of pairs and masks are None if there are none.
    """
    size, length = arrays["tokens"].shape
    absent = mlm_batch.shapes(size, length, 0, arrays["cls_positions"].shape[1])
    arrays = batch.zeros(absent) | arrays
    weights = arrays["pair_weights"].sum()
    real, positions = map(float, real_token_share(arrays))
    texts = []
    for row in range(min(rows, size)):
        texts += show(arrays, row, tokenizer)
    return {
        "real_token_share": real / positions,
        "pair_ratio": float(arrays["pair_labels"].sum() / weights) if weights else None,
        "pairs_per_row": float(arrays["sequence_ids"].max(axis=1).mean()),
        "masked_per_row": float(arrays["masked_weights"].sum() / size) or None,
        "rows": texts,
    }


def show(arrays: dict, row: int, tokenizer) -> list[str]:
    """Returns the pieces of each sequence in a row: of `tokens`, and then of each X_tokens."""
    texts = []
    for tokens in [name for name in arrays if name.endswith("tokens")]:
        prefix = tokens.removesuffix("tokens")
        ids = arrays[tokens]
        owners = arrays.get(f"{prefix}sequence_ids", np.ones_like(ids))[row]
        pieces = [tokenizer.readable(id) for id in ids[row]]
        if not prefix:
            mark(pieces, arrays, row, tokenizer)
        for pair in range(owners.max()):
            name = f"row {row}"
            if arrays["pair_weights"].shape[1] > 1:
                name += f".{pair + 1}"
            if prefix:
                name += f" {prefix[:-1]}"
            elif arrays["pair_weights"][row, pair]:
                name += f" label {arrays['pair_labels'][row, pair]}"
            text = " ".join(pieces[position] for position in np.flatnonzero(owners == pair + 1))
            texts.append(f"{name}: {text}")
    return texts


def mark(pieces: list[str], arrays: dict, row: int, tokenizer) -> None:
    """Replaces each masked piece of a row by {input<target}, or {target} if it is unchanged."""
    for number in np.flatnonzero(arrays["masked_weights"][row]):
        position = arrays["masked_positions"][row, number]
        target = tokenizer.readable(arrays["masked_targets"][row, number])
        seen = "" if pieces[position] == target else f"{pieces[position]}<"
        pieces[position] = f"{{{seen}{target}}}"


def save(config: ConfigDict, first: int, last: int, directory: Path, log=print) -> dict:
    """Saves the batches of steps first to last - 1, for machines without TensorFlow; see batch_files.save.

    Raises BadInput for invalid steps or an unusable directory, before anything is computed or written.
    """
    total = configs.total_steps(config)
    if not 0 <= first < last <= total:
        raise BadInput(
            f"--steps {first}:{last}: expected A:B for the steps A to B - 1, from 0 to {total - 1}"
        )
    check_free(directory, "--save")
    if config.batches:
        raise BadInput(f"config.batches={config.batches}: must be empty, --save reads the store")
    check_unscored(config)
    feed = prepare_feed(config, log)
    feed.dataset = dataclasses.replace(feed.dataset, sizes=None)  # evaluated rows are saved uncut
    if config.verify_store:
        feed.check_hashes()
    return batch_files.save(feed, first, last, directory, log)
