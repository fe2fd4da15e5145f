"""The batch at a step, as the model will see it."""

from ml_collections import ConfigDict

from bert_jax import batch, tokenizer
from bert_jax import config as configs
from bert_jax.data import prepare, stream
from bert_jax.errors import BadInput


def inspect(config: ConfigDict, step: int, rows: int, log=print) -> dict:
    """The batch that step `step` trains on: its phase, sha256, fill, pair_ratio, masked_per_row, and texts of rows."""
    total = configs.total_steps(config)
    if not 0 <= step < total:
        raise BadInput(f"--step {step}: the run has the steps 0 to {total - 1}")
    prepare.prepare(config, log)
    store = prepare.open_or_refuse(config)
    words = tokenizer.load(store.path / "tokenizer")
    phase = next(phase for phase in configs.phases(config) if step < phase.last)
    local = step - phase.first
    spec = stream.spec(config, phase.name)
    arrays = next(stream.train_batches(store, words.word_starts, spec, local, local + 1))
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
