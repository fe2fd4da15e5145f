"""The rows of every epoch in their random order: which pairs are in the row of a number.

Of an epoch the rows are counted, packed ones where runs pack: a short epoch wraps, a surplus is dropped.
"""

import threading

import numpy as np

from bert_jax import prng
from bert_jax.data import packing, row_index, sentence_pairs
from bert_jax.data.store import Store
from bert_jax.errors import BadInput


class Epochs:
    """Every epoch of one split under one set of rules, `sequences` pairs a row at most. Raises BadInput."""

    def __init__(self, store: Store, split: str, rules: sentence_pairs.Rules, sequences: int):
        self.split, self.rules = store.splits[split], rules
        sentence_pairs.check_rules(self.split, rules)
        self.indexes = [row_index.of_pairs(store, split, rules)]
        if sequences > 1:
            self.indexes.append(packing.of_packed(*self.indexes, self.split, rules, sequences))
        self.opened, self.opening = {}, threading.Lock()

    def open(self, epoch: int) -> list[np.ndarray]:
        """The mapped files of an epoch, which are built where they are missing: its pairs int64[N, 3] and, where runs
        pack, which of them share a row, uint32[R, S]. Where another thread builds an epoch, this waits for it."""
        if epoch not in self.opened:
            with self.opening:
                if epoch not in self.opened:
                    self.opened[epoch] = [index.open(epoch) for index in self.indexes]
        return self.opened[epoch]

    def rows_per_epoch(self) -> int:
        """The rows of epoch 0, which every epoch is taken to have."""
        return len(self.open(0)[-1])

    def forget(self, epoch: int) -> None:
        """Closes earlier epochs, and deletes their indexes but for the first."""
        for number in list(self.opened):  # another thread may add one
            if number < epoch:
                del self.opened[number]
        for index in self.indexes:
            index.forget(epoch)

    def cancel(self) -> None:
        """Ends what another thread builds."""
        for index in self.indexes:
            index.cancelled.set()

    def choose(self, epoch: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows by their numbers int64[...], of any size -> (their pairs int64[..., S, 5], each a sentence_pairs.Rows,
        zeros where there is none, and the pairs' numbers in the epoch uint32[..., S]).

        An epoch with fewer rows than epoch 0 begins again; of one with more, the last are left out. Raises BadInput
        where a file is damaged.
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
            # Masks are drawn by these numbers: those of a row that is used again are others.
            members = members + (numbers // len(packed) * count)[..., None]
        chosen = np.zeros((*members.shape, sentence_pairs.COLUMNS), np.int64)
        chosen[used] = pairs[prng.shuffle(members[used] % count, count, order)]
        rows = sentence_pairs.unpack(chosen)
        is_sound = sentence_pairs.are_sound(rows, used, len(self.split.tokens))
        if not is_sound or (packing.lengths(rows, self.rules).sum(-1) > self.rules.length).any():
            for index in self.indexes:
                index.path(epoch).unlink(missing_ok=True)
            raise BadInput(f"{index.path(epoch)}: damaged, and deleted now; start again")
        return np.stack(rows, axis=-1), members.astype(np.uint32)
