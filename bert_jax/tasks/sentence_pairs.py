"""BERT's task: rows of sentence pairs, masked; several pairs are packed in a row if `max_packed` says so.

B rows, S pairs per row at most.
"""

import numpy as np

from bert_jax import prng
from bert_jax.data.dataset import Dataset
from bert_jax.data.store import SPLITS, Store
from bert_jax.errors import BadInput
from bert_jax.objectives import mlm_batch
from bert_jax.tasks import packing, pair_rows, pair_survey
from bert_jax.tasks.pair_rows import Rules
from bert_jax.tokenizers import tokenizer


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store's sentence pairs; see tasks/base.py."""
    words = store and tokenizer.load(store.path / "tokenizer").word_starts
    return dataset(config, store, words)


def dataset(config, store: Store | None, word_starts: np.ndarray | None) -> Dataset:
    """Returns the dataset. word_starts: bool[V], the pieces that start a word."""
    task, paired = config.task, config.objective.pair_task != "none"

    def shapes(phase, rows: int) -> dict:
        keys = phase.keys
        return mlm_batch.shapes(rows, phase.length, keys.max_predictions, keys.max_packed)

    def rows(phase, split: str, epoch: int) -> EpochRows:
        return EpochRows(store, split, rules(config, phase, split), phase.keys.max_packed, epoch)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble, masking

        special = store.manifest["special"]
        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        arrays = assemble.gather(tokens, rows, phase.length, special, paired)
        inputs = [arrays.pop(name) for name in ("ends", "sizes", "maskable", "begins")]
        settings = masking.Settings.of(task, phase.keys.max_predictions)
        masked = masking.mask(
            settings, special["mask"], word_starts, keys, arrays["tokens"], *inputs
        )
        return arrays | masked

    def survey(phase):
        return pair_survey.survey(config, store.splits["train"], phase, rules(config, phase))

    return Dataset(shapes, SPLITS, rows, make_batch, survey)


def rules(config, phase, split: str = "train") -> Rules:
    """Returns the settings that decide the rows of a phase; those of held-out rows depend on no seed."""
    seed, number = (config.seed, phase.number) if split == "train" else (0, 0)
    return Rules(seed, number, phase.length, config.objective.pair_task, config.task.short_rate)


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
            for index in self.indexes:
                index.path(self.epoch).unlink(missing_ok=True)
            raise BadInput(f"{index.path(self.epoch)}: damaged, deleted; start again")
        return np.stack(rows, axis=-1)
