"""BERT's task: rows of sentence pairs, masked; several pairs are packed in a row if `max_packed` says so.

B rows, S pairs per row at most.
"""

import numpy as np

from bert_jax import prng
from bert_jax.config_checks import check_keys, require
from bert_jax.data import row_index
from bert_jax.data.dataset import Dataset
from bert_jax.data.store import SPLITS, Store
from bert_jax.objectives import mlm_batch
from bert_jax.tasks import masked_rows, packing, pair_rows, pair_survey
from bert_jax.tasks.pair_rows import Rules
from bert_jax.tokenizers import tokenizer

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
        require(phase.length >= 5, f"{path}.length", config, "expected at least 5")
        hint = f"expected 1 to {most} pairs in a row of {phase.length} tokens"
        require(1 <= phase.max_packed <= most, f"{path}.max_packed", config, hint)
    masked_rows.check(config, special=3)
    check_keys(config, shares=("task.short_rate",))


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store's sentence pairs; see tasks/base.py."""
    words = store and tokenizer.load(store.path / "tokenizer").word_starts
    return dataset(config, store, words)


def dataset(config, store: Store | None, word_starts: np.ndarray | None) -> Dataset:
    """Returns the dataset. word_starts: bool[V], the pieces that start a word."""
    paired = pair_task(config) != "none"

    def shapes(phase, rows: int) -> dict:
        keys = phase.keys
        return mlm_batch.shapes(rows, phase.length, keys.max_predictions, keys.max_packed)

    def rows(phase, split: str, epoch: int) -> EpochRows:
        return EpochRows(store, split, rules(config, phase), phase.keys.max_packed, epoch)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble, masking

        special = store.manifest["special"]
        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        arrays = assemble.gather(tokens, rows, phase.length, special, paired)
        most = phase.keys.max_predictions
        return masking.apply(config.task, most, special, word_starts, keys, arrays)

    def survey(phase):
        return pair_survey.survey(config, store.splits["train"], phase, rules(config, phase))

    return Dataset(shapes, SPLITS, rows, make_batch, survey)


def rules(config, phase) -> Rules:
    """Returns the settings that decide the rows of a phase."""
    seed, short_rate = config.seed, config.task.short_rate
    return Rules(seed, phase.number, phase.length, pair_task(config), short_rate)


def pair_task(config) -> str:
    """Returns nsp, sop or none; none for an objective that knows no pairs."""
    return config.objective.get("pair_task", "none")


class EpochRows:
    """The rows of an epoch, from mapped files: `rows[numbers]`, int64[...] -> int64[..., S, 5].

    The last axis is a pair_rows.Rows, zeros for an absent pair. Held-out rows have one pair each.
    """

    def __init__(self, store: Store, split: str, rules: Rules, sequences: int, epoch: int):
        """Maps the index files of the epoch, and builds them if they are missing. sequences: S."""
        self.split, self.rules, self.sequences, self.epoch = (
            store.splits[split],
            rules,
            sequences,
            epoch,
        )
        pair_rows.check_rules(self.split, rules)
        self.indexes = [pair_rows.indexes(store, split, rules)]
        if sequences > 1 and split == "train":
            self.indexes.append(packing.indexes(self.indexes[0], self.split, rules, sequences))
        self.pairs, *self.packed = (index.open(epoch) for index in self.indexes)

    def __len__(self) -> int:
        return len(self.packed[0] if self.packed else self.pairs)

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        """Raises BadInput if an index file is damaged."""
        if self.packed:
            key = pair_rows.purpose_key(self.split, self.rules, self.epoch, "packed_order")
            members = self.packed[0][numbers]
            used = members != packing.NONE
            pairs = prng.shuffle(members[used] % len(self.pairs), len(self.pairs), key)
        else:
            used = np.zeros((*numbers.shape, self.sequences), bool)
            used[..., 0] = True
            pairs = numbers.reshape(-1)
        chosen = np.zeros((*used.shape, pair_rows.COLUMNS), np.int64)
        chosen[used] = self.pairs[pairs]
        rows = pair_rows.unpack(chosen)
        is_valid = pair_rows.are_valid(rows, used, len(self.split.tokens))
        if not is_valid or (packing.lengths(rows, self.rules).sum(-1) > self.rules.length).any():
            raise row_index.damaged(self.indexes, self.epoch)
        return np.stack(rows, axis=-1)
