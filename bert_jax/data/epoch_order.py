"""The random order of rows in every epoch: maps row numbers to sentence pairs.

Every epoch has as many rows as epoch 0, counted after packing. A shorter epoch wraps around; surplus rows are dropped.
"""

import threading

import numpy as np

from bert_jax import prng
from bert_jax.data import row_index
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.tasks import packing, sentence_pairs


class Epochs:
    """The epochs of one split under one set of rules, with at most `sequences` pairs per row.

    Raises BadInput if the split has too few documents for the rules.
    """

    def __init__(self, store: Store, split: str, rules: sentence_pairs.Rules, sequences: int):
        self.split, self.rules = store.splits[split], rules
        sentence_pairs.check_rules(self.split, rules)
        self.indexes = [row_index.pair_indexes(store, split, rules)]
        if sequences > 1:
            self.indexes.append(packing.packed_indexes(*self.indexes, self.split, rules, sequences))
        self.opened, self.opening = {}, threading.Lock()

    def open(self, epoch: int) -> list[np.ndarray]:
        """Maps the index files of an epoch, and builds them if they are missing.

        Returns the pairs, int64[N, 3], and, if rows are packed, the pair numbers of each row, uint32[R, S]. Waits if
        another thread builds an epoch.
        """
        if epoch not in self.opened:
            with self.opening:
                if epoch not in self.opened:
                    self.opened[epoch] = [index.open(epoch) for index in self.indexes]
        return self.opened[epoch]

    def rows_per_epoch(self) -> int:
        """Returns the number of rows of epoch 0, which is used for every epoch."""
        return len(self.open(0)[-1])

    def close_before(self, epoch: int) -> None:
        """Closes the epochs before `epoch` and deletes their indexes, except the files of epoch 0."""
        for number in list(self.opened):  # a copy, since another thread may add an epoch
            if number < epoch:
                del self.opened[number]
        for index in self.indexes:
            index.delete_before(epoch)

    def cancel(self) -> None:
        """Cancels the building of indexes in other threads."""
        for index in self.indexes:
            index.cancelled.set()

    def choose(self, epoch: int, numbers: np.ndarray) -> np.ndarray:
        """Maps row numbers, int64[...] of any size, to pairs, int64[..., S, 5].

        The last axis is a sentence_pairs.Rows, zeros for an absent pair. Row numbers beyond the end of
        the epoch wrap around. Raises BadInput if an index file is damaged.
        """
        pairs, *others = self.open(epoch)
        count = len(pairs)
        order = sentence_pairs.purpose_key(self.split, self.rules, epoch, "order")
        if not others:
            members, used = numbers[..., None], np.ones((*numbers.shape, 1), bool)
        else:
            packed = others[0]
            key = sentence_pairs.purpose_key(self.split, self.rules, epoch, "packed_order")
            members = packed[prng.shuffle(numbers % len(packed), len(packed), key)]
            used = members != packing.NONE
        chosen = np.zeros((*members.shape, sentence_pairs.COLUMNS), np.int64)
        chosen[used] = pairs[prng.shuffle(members[used] % count, count, order)]
        rows = sentence_pairs.unpack(chosen)
        is_valid = sentence_pairs.are_valid(rows, used, len(self.split.tokens))
        if not is_valid or (packing.lengths(rows, self.rules).sum(-1) > self.rules.length).any():
            for index in self.indexes:
                index.path(epoch).unlink(missing_ok=True)
            raise BadInput(f"{index.path(epoch)}: damaged, deleted; start again")
        return np.stack(rows, axis=-1)
