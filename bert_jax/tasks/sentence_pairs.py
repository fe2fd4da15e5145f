"""BERT's task: rows of sentence pairs, masked; several pairs are packed in a row if `max_packed` says so.

B rows, S pairs per row at most.
"""

from functools import partial

import numpy as np

from bert_jax.config_checks import check_keys, require
from bert_jax.data.dataset import Dataset, Survey
from bert_jax.data.store import SPLITS, Split, Store
from bert_jax.objectives import mlm_batch
from bert_jax.tasks import masked_rows, packing, pair_rows, pair_survey

DEFAULTS = {
    **masked_rows.DEFAULTS,
    # share of documents, drawn anew in each epoch, whose rows get a random, shorter target length
    "short_rate": 0.1,
}
PHASE_DEFAULTS = {
    **masked_rows.PHASE_DEFAULTS,
    "max_packed": 1,  # sentence pairs packed in a row, at most; 1: as in BERT
}


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    for name, phase in config.phases.items():
        path, most = f"phases.{name}", phase.length // 5
        require(5 <= phase.length < 1 << 16, f"{path}.length", config, "expected 5 to 65535")
        hint = f"expected 1 to {most} pairs in a row of {phase.length} tokens"
        require(1 <= phase.max_packed <= most, f"{path}.max_packed", config, hint)
    masked_rows.check(config, special=3)
    check_keys(config, shares=("task.short_rate",))


def make(config, store: Store | None = None, word_starts: np.ndarray | None = None) -> Dataset:
    """Returns the dataset of a store's sentence pairs; see tasks/base.py. word_starts: see masked_rows.mask."""

    def shapes(phase, rows: int) -> dict:
        keys = phase.keys
        return mlm_batch.shapes(rows, phase.length, keys.max_predictions, keys.max_packed)

    def rows(phase, split: str, epoch: int) -> masked_rows.IndexedRows:
        part, own, most = store.splits[split], rules(config, phase), phase.keys.max_packed
        indexes = [pair_rows.indexes(store, split, own)]
        if most > 1 and split == SPLITS[0]:  # held-out rows have one pair each
            indexes.append(packing.indexes(indexes[0], part, own, most))
        return masked_rows.IndexedRows(indexes, epoch, partial(read, part, own, most))

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        special, paired = store.manifest["special"], masked_rows.pair_task(config) != "none"
        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        arrays = assemble.gather(tokens, rows, phase.length, special, paired)
        return masked_rows.mask(config, phase, store, word_starts, keys, arrays)

    def survey(phase) -> Survey:
        return pair_survey.survey(config, store.splits[SPLITS[0]], phase, rules(config, phase))

    return Dataset(shapes, SPLITS, rows, make_batch, survey)


def rules(config, phase) -> pair_rows.Rules:
    """Returns the settings that decide the rows of a phase."""
    pair_task, short_rate = masked_rows.pair_task(config), config.task.short_rate
    return pair_rows.Rules(config.seed, phase.number, phase.length, pair_task, short_rate)


def read(split: Split, rules: pair_rows.Rules, sequences: int, numbers, pairs, packed=None):
    """Returns the rows with these numbers, and whether they are valid: int64[..., S, 5], bool.

    The last axis is a pair_rows.Rows, zeros for an absent pair. sequences: S. numbers: int64[...]. pairs, packed: the
    indexes of the epoch; without `packed`, each row has one pair.
    """
    members = np.full((*numbers.shape, sequences), packing.NONE, np.int64)
    if packed is None:
        members[..., 0] = numbers
    else:
        members[:] = packed[numbers]
    used = members != packing.NONE
    chosen = np.zeros((*used.shape, pairs.shape[1]), np.int64)
    chosen[used] = pairs[members[used] % len(pairs)]
    rows = pair_rows.unpack(chosen)
    fit = packing.lengths(rows, rules).sum(axis=-1) <= rules.length
    are_valid = fit.all() and pair_rows.are_valid(rows, used, len(split.tokens))
    return np.stack(rows, axis=-1), are_valid
