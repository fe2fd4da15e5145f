"""Streams the batches of a Dataset from any step on, this host's rows only: tf.data over memory-mapped files.

The row numbers of a step are computed by arithmetic, and a permutation of the epoch maps them to rows. One tf.data
graph without Python code makes whole batches and prefetches them. There is no iterator state: step n is a pure function
of (dataset, seed, n). The next epoch's rows are opened in the background.

B rows of this host, N steps.
"""

import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert_jax import prng
from bert_jax.data import batch as contract
from bert_jax.data.dataset import Dataset, draw_key, lengths, sizes_of
from bert_jax.data.epochs import Epochs

Batches = Iterator[dict[str, np.ndarray]]

WINDOW = 1 << 24  # bytes of the rows' numbers that are read from their files at a time
# Epochs of fewer steps share a tf.data iterator, since starting one takes a tenth of a second.
SHORT = 64
POOL = 64  # batches among which rows are sorted by their sizes
THREADS = 2  # of tf.data, in total

# Otherwise TensorFlow would allocate the accelerators' memory, which JAX needs.
tf.config.set_visible_devices([], "GPU")


class Pipeline:
    """A tf.data graph from steps of one split to batches of the rows at `positions`; traced once for all epochs.

    batch: rows of the global batch.
    positions: those of its rows to make, in this order; all by default.
    limit: rows that are evaluated, at most; None for training.

    Raises what `dataset.rows` raises, immediately.
    """

    def __init__(
        self,
        dataset: Dataset,
        phase,
        split,
        seed: int,
        batch: int,
        positions=None,
        limit=None,
    ):
        self.dataset = dataset
        self.phase = phase
        self.split = dataset.splits.index(split)
        self.seed = seed
        self.batch = batch
        self.positions = contract.positions_or_all(positions, batch)
        self.limit = limit
        self.sizes = sizes_of(dataset, split)
        self.lengths = lengths(dataset, phase, split)
        self.order = functools.lru_cache(maxsize=2)(self.make_order)
        self.epochs = Epochs(dataset, phase, split)
        first_row = self.epochs.open(0)[np.zeros(1, np.int64)]
        self.shape = first_row.shape[1:]

        def make_dataset(rows, keys):
            batches = tf.data.Dataset.from_tensor_slices((rows, keys))
            make = functools.partial(dataset.make, phase, split)
            return batches.map(make, THREADS, deterministic=True).prefetch(2)

        rows = tf.TensorSpec([None, None, *self.shape], tf.int64)
        keys = tf.TensorSpec([None, None], tf.uint32)
        traced = tf.function(make_dataset, (rows, keys), autograph=False)
        self.make_dataset = traced.get_concrete_function()

    def steps_per_epoch(self) -> int:
        return max(1, len(self.epochs.open(0)) // self.batch)

    def __call__(self, steps: np.ndarray, epoch_steps: int) -> Batches:
        """Yields what the task makes for these steps, int64[N]."""
        rows = []
        keys = []
        epochs, steps = np.divmod(steps, epoch_steps)
        row_numbers = steps[:, None] * self.batch + self.positions
        for epoch in np.unique(epochs).tolist():
            numbers = row_numbers[epochs == epoch]
            rows.append(self.choose(numbers, epoch))
            keys.append(prng.fold(self.key("row", epoch), numbers.astype(np.uint32)))
        batches = self.make_dataset(np.concatenate(rows), np.concatenate(keys))
        batches = batches.with_options(options()).as_numpy_iterator()
        for epoch, step, arrays in zip(epochs.tolist(), steps, batches, strict=True):
            if self.sizes:
                arrays = self.cut(arrays, step, epoch)
            yield arrays

    def cut(self, arrays: dict, step: int, epoch: int) -> dict:
        """Cuts the arrays of this host's rows to the least length that holds all rows of the step's batch."""
        numbers = step * self.batch + np.arange(self.batch)
        longest = self.sizes(self.choose(numbers, epoch)).max()
        length = self.lengths[np.searchsorted(self.lengths, longest)]
        phase = self.phase._replace(length=length)
        shapes = self.dataset.shapes(phase, len(self.positions))
        result = {}
        for name, array in arrays.items():
            ranges = map(slice, shapes[name].shape)
            result[name] = array[tuple(ranges)]
        return result

    def choose(self, numbers: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the rows with these numbers, int64[...], in the epoch's random order."""
        return self.epochs.open(epoch)[self.places(numbers, epoch)]

    def places(self, numbers: np.ndarray, epoch: int) -> np.ndarray:
        """Returns where the rows with these numbers of the random order are in the epoch's rows, int64[...]."""
        if self.sizes or self.dataset.group:
            order = self.order(epoch)
            return order[numbers % len(order)]
        count = len(self.epochs.open(epoch))
        return prng.shuffle(numbers % count, count, self.key("order", epoch))

    def make_order(self, epoch: int) -> np.ndarray:
        """Returns the order of an epoch in which neighbours have similar sizes, int64[R].

        The random order is sorted by size within pools of batches; then the batches are put in random order. Rows that
        are evaluated, the first `limit` of the random order in whole groups, are sorted as a whole.
        """
        rows = self.epochs.open(epoch)
        count = len(rows)
        order = prng.shuffle(np.arange(count), count, self.key("order", epoch))
        if self.limit is not None:
            chosen = slice(self.limit)
            if self.dataset.group:
                chosen = choose_groups(self.dataset.group(rows[order]), self.limit)
            order = order[chosen]
        sizes = np.zeros(count)
        if self.sizes:
            sizes = self.sizes(rows)
        if self.split:
            return sort_by_size(order, sizes)
        # Rows that fill no batch are the last ones of the random order, not the longest ones.
        batches = count // self.batch
        stop = batches * self.batch or count
        pool = POOL * self.batch
        for first in range(0, stop, pool):
            places = slice(first, min(first + pool, stop))
            order[places] = sort_by_size(order[places], sizes)
        in_batches = order[: batches * self.batch].reshape(batches, self.batch)
        moved = prng.shuffle(np.arange(batches), max(1, batches), self.key("batches", epoch))
        order[: in_batches.size] = in_batches[moved].ravel()
        return order

    def key(self, purpose: str, epoch: int) -> np.ndarray:
        return draw_key(self.seed, purpose, self.split, self.phase.number, epoch)


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


def train_batches(pipeline: Pipeline, first: int, last: int) -> Batches:
    """Yields the batches of steps first..last-1 of a phase."""
    return batches(pipeline, first, last, pipeline.steps_per_epoch(), np.inf)


def batches(pipeline: Pipeline, first: int, last: int, epoch_steps: int, rows: float):
    """Yields the batches of steps first..last-1 of a phase with their weights.

    epoch_steps: steps per epoch.
    rows: those after the first `rows` only fill a batch.
    """
    numbers_of_row = int(np.prod(pipeline.shape))
    step_bytes = 8 * numbers_of_row * len(pipeline.positions)
    epochs = -(-last // epoch_steps)
    for steps in windows(first, last, epoch_steps, step_bytes):
        epoch = int(steps[0]) // epoch_steps
        after = int(steps[-1]) // epoch_steps + 1
        # The previous epoch is kept: a host that is some steps behind still maps its files.
        pipeline.epochs.close_before(epoch - 1)
        stop = min(2 * after - epoch, epochs)  # as many epochs as these steps have
        pipeline.epochs.open_in_background(range(after, stop))
        for step, arrays in zip(steps, pipeline(steps, epoch_steps), strict=True):
            is_used = step * pipeline.batch + pipeline.positions < rows
            yield contract.weighted(arrays, pipeline.positions, is_used)


class Evaluation:
    """Batches of the first `rows` rows of a split that is evaluated (all, if there are fewer), in a random order.

    The rows of a group are all among them or none, so they may be fewer, or as many more as the only group has.

    Every iteration yields the same batches; the graph is traced once. They depend neither on the seed nor on the number
    of the phase, so that runs are evaluated on the same rows. Rows that pad the last batch have row_weights 0.
    """

    def __init__(self, dataset, phase, split: str, rows: int, batch: int, positions=None):
        self.pipeline = Pipeline(dataset, phase, split, 0, batch, positions, rows)
        self.rows = min(rows, len(self.pipeline.epochs.open(0)))
        if dataset.group:
            self.rows = len(self.pipeline.order(0))

    def __iter__(self) -> Batches:
        steps = -(-self.rows // self.pipeline.batch)
        return batches(self.pipeline, 0, steps, steps, self.rows)

    def chosen(self) -> np.ndarray:
        """Returns the rows that are evaluated, int64[R, ...], in the order of the batches."""
        return self.pipeline.choose(np.arange(self.rows), 0)

    def places(self) -> np.ndarray:
        """Returns where these rows are in the rows of the split, int64[R]."""
        return self.pipeline.places(np.arange(self.rows), 0)


def windows(first: int, last: int, epoch_steps: int, step_bytes: int) -> Iterator[np.ndarray]:
    """Splits steps first..last-1 into arrays that read about WINDOW bytes, which bounds the memory for the rows.

    An array ends at the end of an epoch; if epochs are shorter than SHORT steps, it spans SHORT steps instead.

    epoch_steps: steps per epoch.
    step_bytes: of the rows of a step.
    """
    most_steps = max(1, WINDOW // max(1, step_bytes))
    while first < last:
        if epoch_steps < SHORT:
            stop = first + SHORT
        else:
            stop = (first // epoch_steps + 1) * epoch_steps
        stop = min(stop, first + most_steps, last)
        yield np.arange(first, stop)
        first = stop


def options() -> tf.data.Options:
    """Returns tf.data options with a small private thread pool, which leaves the cores to the training step."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = THREADS
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    return options
