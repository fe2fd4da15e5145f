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

from bert_jax.data import batch as contract
from bert_jax.data.dataset import Dataset
from bert_jax.data.mixture import Mixed
from bert_jax.data.order import Order

Batches = Iterator[dict[str, np.ndarray]]

WINDOW = 1 << 24  # bytes of the rows' numbers that are read from their files at a time
# Epochs of fewer steps share a tf.data iterator, since starting one takes a tenth of a second.
SHORT = 64
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
        self.batch = batch
        self.positions = contract.positions_or_all(positions, batch)
        self.lengths = dataset.lengths(phase, split)
        if phase.mixture and limit is None:
            self.order = Mixed(dataset, phase, split, seed)
        else:
            self.order = Order(dataset, phase, split, seed, batch, limit)

        def make_dataset(rows, keys):
            batches = tf.data.Dataset.from_tensor_slices((rows, keys))
            make = functools.partial(dataset.make, phase, split)
            return batches.map(make, THREADS, deterministic=True).prefetch(2)

        rows = tf.TensorSpec([None, None, *self.order.shape], tf.int64)
        keys = tf.TensorSpec([None, None], tf.uint32)
        traced = tf.function(make_dataset, (rows, keys), autograph=False)
        self.make_dataset = traced.get_concrete_function()

    def __call__(self, steps: np.ndarray) -> Batches:
        """Yields what the task makes for these steps, int64[N]."""
        batches = self.make_dataset(*self.order.take(steps, self.positions))
        batches = batches.with_options(options()).as_numpy_iterator()
        for step, arrays in zip(steps, batches, strict=True):
            if self.order.sizes:
                arrays = self.trim(arrays, step)
            yield arrays

    def trim(self, arrays: dict, step: int) -> dict:
        """Trims the arrays of this host's rows to the least length that holds all rows of the step's batch."""
        rows, _ = self.order.take(np.array([step]), np.arange(self.batch))
        longest = self.order.sizes(rows[0]).max()
        length = self.lengths[np.searchsorted(self.lengths, longest)]
        phase = self.phase._replace(length=length)
        shapes = self.dataset.shapes(phase, len(self.positions))
        result = {}
        for name, array in arrays.items():
            ranges = map(slice, shapes[name].shape)
            result[name] = array[tuple(ranges)]
        return result


def batches(pipeline: Pipeline, first: int, last: int, rows: float = np.inf):
    """Yields the batches of steps first..last-1 of a phase with their weights.

    rows: those after the first `rows` only fill a batch.
    """
    order = pipeline.order
    numbers_of_row = int(np.prod(order.shape))
    step_bytes = 8 * numbers_of_row * len(pipeline.positions)
    # Epochs end at multiples of their steps, counted from `shift` on.
    shift = order.epoch_steps - order.left
    for steps in windows(first + shift, last + shift, order.epoch_steps, step_bytes):
        steps = steps - shift
        order.open_next(steps, last - 1)
        for step, arrays in zip(steps, pipeline(steps), strict=True):
            is_used = step * pipeline.batch + pipeline.positions < rows
            yield contract.weighted(arrays, pipeline.positions, is_used)


class EvaluationBatches:
    """Batches of the first `rows` rows of a split that is evaluated (all, if there are fewer), in a random order.

    The rows of a group are all among them or none, so they may be fewer, or as many more as the only group has.

    Every iteration yields the same batches; the graph is traced once. They depend neither on the seed nor on the number
    of the phase, so that runs are evaluated on the same rows. Rows that pad the last batch have row_weights 0.
    """

    def __init__(self, dataset, phase, split: str, rows: int, batch: int, positions=None):
        phase = phase._replace(before=())
        self.pipeline = Pipeline(dataset, phase, split, 0, batch, positions, rows)
        self.order = self.pipeline.order
        self.rows = min(rows, self.order.count)
        if dataset.group:
            self.rows = len(self.order.permutation(0))

    def __iter__(self) -> Batches:
        steps = -(-self.rows // self.pipeline.batch)
        return batches(self.pipeline, 0, steps, self.rows)

    def chosen(self) -> np.ndarray:
        """Returns the rows that are evaluated, int64[R, ...], in the order of the batches."""
        return self.order.choose(np.arange(self.rows), 0)


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
