"""Before step 0: what would waste a run is said with its number and its remedy, what cannot work stops it."""

import math
import shutil
from pathlib import Path

import jax

from bert_jax import config as configs
from bert_jax.checkpoints import reader
from bert_jax.data import batch_spec, store_sample
from bert_jax.errors import BadInput
from bert_jax.runs.out_of_memory import gib
from bert_jax.runs.workdir import CHECKPOINTS

LEAST_REAL = 0.5
FEW = 100  # pairs
MOST_RANDOM = 0.7  # the original's share of random pairs is a little over a half
CUT = 0.05  # share of the wanted predictions that are cut off


def check_data(config, data) -> list[str]:
    """Lines about what a run reads, a feed of data/feed.py. Raises BadInput for what cannot work."""
    if data.key == "batches":
        return [f"preflight: {data.path} {data.describe()}, as they were saved"]
    return [f"preflight: {line}" for line in check_phases(config, data.store)]


def check_phases(config, store) -> list[str]:
    """Warnings about the rows of each phase, and a line with their numbers, of a sample: a store of any size takes
    seconds. Raises BadInput for what cannot work."""
    warnings, numbers = [], []
    for phase in configs.phases(config):
        rows = store_sample.survey_rows(store, batch_spec.spec(config, phase.name))
        warnings += check_rows(config, phase, rows)
        packed = f", {rows.pairs / rows.rows:.1f} pairs a row" if phase.max_packed > 1 else ""
        numbers.append(
            f"{phase.name} {rows.real_token_share:.0%} full{packed}, {rows.pair_ratio:.0%} label 1"
        )
    return [*warnings, f"rows {'; '.join(numbers)}"]


def check_disk(config, directory: Path, state_shapes) -> None:
    """Raises BadInput where there is no room for the newest checkpoints and one more while it is written."""
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state_shapes))
    keep, there = config.checkpoint.keep, len(reader.steps(directory / CHECKPOINTS))
    most = min(keep, math.ceil(configs.total_steps(config) / config.checkpoint.every)) + 1 - there
    free = shutil.disk_usage(directory).free
    if free < most * size:
        raise BadInput(
            f"config.checkpoint.keep={keep}: {most} checkpoints of {gib(size)} are to come, {gib(free)} are free at"
            f" {directory}"
        )


def check_rows(config, phase, rows) -> list[str]:
    warnings, key = [], f"phases.{phase.name}"
    if rows.real_token_share < LEAST_REAL:
        warnings.append(
            f"rows are {rows.real_token_share:.0%} full, the rest is padding: a smaller {key}.length wastes less,"
            f" and so does a larger {key}.max_packed"
        )
    if rows.given < (1 - CUT) * rows.wanted:
        warnings.append(
            f"{key}.max_predictions={phase.max_predictions} cuts off {1 - rows.given / rows.wanted:.0%} of the masked"
            " positions"
        )
    pairs = config.objective.pair_task
    # Whether there is something to learn from pairs; of a few nothing can be said.
    if pairs != "none" and rows.pairs >= FEW and not 0.0 < rows.pair_ratio <= MOST_RANDOM:
        text = (
            f"{rows.pair_ratio:.0%} of {rows.pairs} pairs have label 1, expected a little over half: documents have few"
            f" sentences for {key}.length={phase.length}; check corpus.format and corpus.sentences, or set"
            " objective.pair_task=none"
        )
        if rows.pair_ratio in (0.0, 1.0):
            raise BadInput(f"config.objective.pair_task={pairs!r}: {text}")
        warnings.append(text)
    return warnings
