"""The batch at a step, as the model will see it; and the batches of many steps, saved."""

from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from bert_jax import batch, save_batches, tokenizer
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.feed import StoreFeed, import_stream, open_feed


def inspect(config: ConfigDict, step: int, rows: int, log=print) -> dict:
    """The batch that step `step` trains on: its phase, sha256, fill, pair_ratio, masked_per_row, and texts of rows."""
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
        "fill": float((arrays["sequence_ids"] > 0).mean()),
        "pair_ratio": float(arrays["pair_labels"].sum() / weights) if weights else None,
        "masked_per_row": float(arrays["masked_weights"].sum() / phase.batch),
        "rows": [show(arrays, row, words) for row in range(min(rows, phase.batch))],
    }


def save(config: ConfigDict, first: int, last: int, directory: Path, log: Callable) -> dict:
    """Saves the batches of steps first..last-1 for machines without TensorFlow; see save_batches.save."""
    save_batches.check(config, first, last, directory)
    if config.batches:
        raise BadInput(f"config.batches={config.batches}: batches are saved from the store")
    feed = prepared(config, log)
    feed.check(first)
    if config.store_hashes:
        feed.check_hashes()
    return save_batches.save(feed, first, last, directory, log)


def prepared(config: ConfigDict, log: Callable) -> StoreFeed:
    """The store of the config, prepared first if it is missing."""
    from bert_jax.data import prepare

    import_stream()
    prepare.prepare(config, log)
    return StoreFeed(config, prepare.open_or_refuse(config))


def show(arrays: dict, row: int, words) -> str:
    """The pieces of a row; a masked position reads {shown<target}, or {target} where it was kept."""
    used = arrays["masked_weights"][row] > 0
    positions = arrays["masked_positions"][row][used]
    targets = dict(zip(positions, arrays["masked_targets"][row][used], strict=True))
    pieces = []
    for place in range(int((arrays["sequence_ids"][row] > 0).sum())):
        shown = words.readable(arrays["tokens"][row, place])
        if place in targets:
            target = words.readable(targets[place])
            shown = f"{{{target}}}" if shown == target else f"{{{shown}<{target}}}"
        pieces.append(shown)
    label = f" label {arrays['pair_labels'][row, 0]}" if arrays["pair_weights"][row, 0] else ""
    return f"row {row}{label}: {' '.join(pieces)}"


def describe(values: dict) -> str:
    ratio = values["pair_ratio"]
    pairs = "" if ratio is None else f"  label 1 {ratio:.3f}"
    head = (
        f"step {values['step']} (phase {values['phase']})  fill {values['fill']:.3f}{pairs}  "
        f"masked a row {values['masked_per_row']:.2f}  sha256 {values['sha256']}"
    )
    return "\n".join([head, *values["rows"]])
