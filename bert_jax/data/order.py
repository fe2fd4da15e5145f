"""The rows of a split of a Dataset, in the random order of each epoch, in one phase. Pure NumPy.

A phase goes on in the text of the phases before it with rows of the same shape: where their last batch ended. The rows
of a source of a split (train_fi) have epochs and an order of their own.

B rows of a batch, R rows of an epoch, N steps.
"""

import functools
import sys
import zlib

import numpy as np

from bert_jax import prng
from bert_jax.data.dataset import Dataset, draw_key
from bert_jax.data.epochs import Epochs

POOL = 64  # batches among which rows are sorted by their sizes


class Order:
    """The rows of a split, or of a source of one, in random order.

    batch: rows of the global batch.
    limit: rows that are evaluated, at most, all of epoch 0; None for training.

    Raises what `dataset.rows` raises, immediately.
    """

    def __init__(self, dataset: Dataset, phase, split: str, seed: int, batch: int, limit=None):
        self.dataset = dataset
        self.phase = phase
        self.seed = seed
        self.batch = batch
        self.limit = limit
        self.epochs = Epochs(dataset, phase, split)
        self.source = ""
        if split not in dataset.splits:
            split, _, self.source = split.partition("_")
        self.split = dataset.splits.index(split)
        self.sizes = dataset.sizes_of(split)
        self.permutation = functools.lru_cache(maxsize=2)(self.make_permutation)
        rows = self.epochs.open(0)
        self.count = len(rows)
        self.shape = rows[np.zeros(1, np.int64)].shape[1:]  # of a row
        self.epoch_steps = self.steps_of(batch)
        self.start = self.find_start()
        self.left = self.steps_left(self.start, batch)

    def steps_of(self, batch: int) -> int:
        """Returns the steps of an epoch. Rows that fill no batch are left out; fewer than a batch are repeated."""
        return sys.maxsize if self.limit else max(1, self.count // batch)

    def steps_left(self, start: tuple, batch: int) -> int:
        """Returns the steps of an epoch from a place on, (epoch, row)."""
        _, row = start
        return max(0, (self.count - row) // batch) if row else self.steps_of(batch)

    def locate(self, steps, start: tuple, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the epoch and the first row of the batch after so many steps from a place on, int64[...] each."""
        epoch, row = start
        later = steps - self.steps_left(start, batch)
        is_first = later < 0
        epochs, places = np.divmod(later, self.steps_of(batch))
        rows = np.where(is_first, row + steps * batch, places * batch)
        return epoch + np.where(is_first, 0, 1 + epochs), rows

    def find_start(self) -> tuple[int, int]:
        """Returns the epoch and the row of the phase's first batch.

        If rows are sorted by size, their order depends on the batch: with another one, the next epoch begins.
        """
        start = 0, 0
        batches = [batch for _, batch, _ in self.phase.before] + [self.batch]
        for number, (steps, batch, _) in enumerate(self.phase.before):
            epoch, row = map(int, self.locate(steps, start, batch))
            start = epoch, row
            if self.sizes and row and batches[number + 1] != batch:
                start = epoch + 1, 0
        return start

    def take(self, steps: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows at these positions of the batches of steps, [N, P, ...], and the key of each, uint32."""
        epochs, firsts = self.locate(steps, self.start, self.batch)
        numbers = firsts[:, None] + positions
        parts = [self.read(numbers[epochs == n], n) for n in np.unique(epochs).tolist()]
        rows, keys = zip(*parts, strict=True)
        return np.concatenate(rows), np.concatenate(keys)

    def open_next(self, steps: np.ndarray, last: int) -> None:
        """Opens epochs in the background that steps after `steps` need, up to the step `last`; closes earlier ones."""
        ends = np.array([steps[0], steps[-1], last])
        epochs, _ = self.locate(ends, self.start, self.batch)
        self.epochs.move(*epochs.tolist())

    def read(self, numbers: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows with these numbers of the random order, and the key of each, uint32[...]."""
        keys = prng.fold(self.key("row", epoch), numbers.astype(np.uint32))
        return self.choose(numbers, epoch), keys

    def choose(self, numbers: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the rows with these numbers, int64[...], in the epoch's random order."""
        return self.epochs.open(epoch)[self.places(numbers, epoch)]

    def places(self, numbers: np.ndarray, epoch: int) -> np.ndarray:
        """Returns where the rows with these numbers of the random order are in the epoch's rows, int64[...]."""
        if self.sizes or self.dataset.group:
            permutation = self.permutation(epoch)
            return permutation[numbers % len(permutation)]
        count = len(self.epochs.open(epoch))
        return prng.shuffle(numbers % count, count, self.key("order", epoch))

    def make_permutation(self, epoch: int) -> np.ndarray:
        """Returns the order of an epoch in which neighbours have similar sizes, int64[R].

        Rows that are evaluated, the first `limit` of the random order in whole groups, are sorted by size, and so are
        fewer rows than a batch. Other rows to train on are sorted within pools of batches; then the batches are put in
        random order. The last rows of the random order, which fill no batch, stay the last ones; otherwise these would
        be the longest rows. For example, with batches of 2 rows and POOL = 2, the sizes of the rows are

            7 3 9 1   5 2   8    in random order
            1 3 7 9   2 5   8    sorted within pools
            2 5   1 3   7 9   8  in random order of batches
        """
        rows = self.epochs.open(epoch)
        count = len(rows)
        order = prng.shuffle(np.arange(count), count, self.key("order", epoch))
        if self.dataset.group and self.limit is not None:
            order = order[choose_groups(self.dataset.group(rows[order]), self.limit)]
        else:
            order = order[: self.limit]
        sizes = self.sizes(rows) if self.sizes else np.zeros(count)
        batches = count // self.batch
        if self.split or not batches:
            return sort_by_size(order, sizes)
        order, rest = np.split(order, [batches * self.batch])
        size = POOL * self.batch
        # The parts are views of `order`.
        for pool in np.split(order, range(size, len(order), size)):
            pool[:] = sort_by_size(pool, sizes)
        in_batches = order.reshape(batches, self.batch)
        moved = prng.shuffle(np.arange(batches), batches, self.key("batches", epoch))
        return np.concatenate([in_batches[moved].ravel(), rest])

    def key(self, purpose: str, epoch: int) -> np.ndarray:
        key = draw_key(self.seed, purpose, self.split, self.phase.text, epoch)
        if self.source:
            key = prng.fold(key, np.uint32(zlib.crc32(self.source.encode())))
        return key


def sort_by_size(rows: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sorts numbers of rows by the sizes of these rows; rows of the same size stay in their order."""
    return rows[np.argsort(sizes[rows], kind="stable")]


def choose_groups(groups: np.ndarray, limit: int) -> np.ndarray:
    """Returns the places, increasing, of the first groups that have at most `limit` rows together.

    If the first group alone has more, returns those of this group. groups: int64[R], equal for the rows of a group.
    """
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first)
    sizes = np.bincount(number)[order]
    count = np.searchsorted(np.cumsum(sizes), limit, "right")
    is_chosen = np.isin(number, order[: max(1, count)])
    return np.flatnonzero(is_chosen)
