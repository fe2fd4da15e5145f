"""The rows of every epoch in their random order: which pairs are in the row of a number.

Of an epoch the rows are counted, packed ones where runs pack: a short epoch wraps, a surplus is dropped.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.data import packing, row_index, sentence_pairs
from bert_jax.data.store import Store


class Epoch(NamedTuple):
    """The mapped files of an epoch: its pairs, and which of them share a row."""

    pairs: np.ndarray  # int64[N, 3], see sentence_pairs.py
    packed: np.ndarray | None  # uint32[R, S]; None where every pair is a row

    @property
    def rows(self) -> int:
        return len(self.pairs if self.packed is None else self.packed)


class Epochs:
    """Every epoch of one split under one set of rules, `sequences` pairs a row at most."""

    def __init__(self, store: Store, split: str, rules: sentence_pairs.Rules, sequences: int):
        self.split, self.rules = store.splits[split], rules
        self.pairs = row_index.of_pairs(store, split, rules)
        self.packed = (
            packing.of_packed(self.pairs, self.split, rules, sequences) if sequences > 1 else None
        )

    def open(self, epoch: int, cancelled: Callable[[], bool] = row_index.never) -> Epoch:
        pairs = self.pairs.open(epoch, cancelled)
        return Epoch(pairs, self.packed.open(epoch, cancelled) if self.packed else None)

    def rows_per_epoch(self) -> int:
        """The rows of epoch 0, which every epoch is taken to have."""
        return self.open(0).rows

    def forget(self, epoch: int) -> None:
        """Deletes the indexes of earlier epochs but for the first."""
        for indexes in filter(None, (self.pairs, self.packed)):
            indexes.forget(epoch)

    def choose(self, epoch: int, opened: Epoch, numbers: np.ndarray):
        """Rows by their numbers int64[...], of any size -> (pairs int64[..., S, 3], zeros where there is none,
        their numbers in the epoch uint32[..., S]).

        An epoch with fewer rows than epoch 0 begins again; of one with more, the last are left out. Raises BadInput
        where a file is damaged.
        """
        count = len(opened.pairs)
        order = sentence_pairs.purpose_key(self.split, self.rules, epoch, "order")
        if opened.packed is None:
            members, used = numbers[..., None], np.ones((*numbers.shape, 1), bool)
        else:
            key = sentence_pairs.purpose_key(self.split, self.rules, epoch, "packed_order")
            size = len(opened.packed)
            members = opened.packed[prng.shuffle(numbers % size, size, key)]
            used = members != packing.NONE
            row_index.check(opened.packed, (members[used] < count).all())
            # Masks are drawn by these numbers: those of a row that is used again are others.
            members = members + (numbers // size * count)[..., None]
        chosen = np.zeros((*members.shape, sentence_pairs.COLUMNS), np.int64)
        places = prng.shuffle(members[used] % count, count, order)
        chosen[used] = opened.pairs[places]
        tokens = len(self.split.tokens)
        row_index.check(opened.pairs, sentence_pairs.are_sound(chosen[used], tokens))
        if opened.packed is not None:
            fits = packing.lengths(chosen, self.rules).sum(-1) <= self.rules.length
            row_index.check(opened.packed, fits.all())
        return chosen, members.astype(np.uint32)
