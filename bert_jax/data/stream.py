"""Streams batches from any step on, this host's rows only: tf.data over the memory-mapped token store.

The row numbers of a step are computed by arithmetic, and a permutation of the epoch's index maps them to rows. One
tf.data graph without Python code gathers whole batches from the mapped file, masks and prefetches them. There is no
iterator state: step n is a pure function of (store, spec, n). The next epoch's index is built in the background.

B rows of this host, L length, P predictions, S pairs per row at most.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from bert_jax import prng
from bert_jax.data import assemble, batch, masking
from bert_jax.data.epoch_order import Epochs
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.tasks.batch_spec import Spec
from bert_jax.tasks.sentence_pairs import Rows, purpose_key

WINDOW = 1 << 19  # pairs whose index is read at a time
# Epochs of fewer steps share a tf.data iterator, since starting one takes a tenth of a second.
SHORT = 64
THREADS = 2  # of tf.data, in total

# Otherwise TensorFlow would allocate the accelerators' memory, which JAX needs.
tf.config.set_visible_devices([], "GPU")


def train_batches(
    store: Store, word_starts: np.ndarray, spec: Spec, first: int, last: int, positions=None
) -> Iterator[dict[str, np.ndarray]]:
    """Returns a generator of the batches (see batch.py) of steps first..last-1 of the phase.

    word_starts: bool[V], the pieces that start a word. positions: the rows of the global batch to make, in this order;
    all by default. Raises BadInput immediately, not at the first batch. A generator that is not read to its end must be
    closed, which stops the thread that builds the next epoch's index.
    """
    return train(Pipeline(store, "train", word_starts, spec, positions), first, last)


def train(pipeline: "Pipeline", first: int, last: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the batches of `train_batches`. That makes the Pipeline, so that its errors are raised at the call."""
    epochs, spec = pipeline.epochs, pipeline.spec
    size, pairs = steps_per_epoch(epochs, spec), len(pipeline.positions) * spec.max_packed
    background = ThreadPoolExecutor(1)
    try:
        for steps in windows(first, last, size, pairs):
            begin, end = int(steps[0]) // size, int(steps[-1]) // size + 1
            # The previous epoch is kept: a host that is some steps behind still maps its index.
            epochs.close_before(begin - 1)
            for epoch in range(end, min(2 * end - begin, -(-last // size))):
                background.submit(epochs.open, epoch)
            yield from pipeline(steps, size)
    finally:
        epochs.cancel()
        background.shutdown(cancel_futures=True)


class Heldout:
    """Batches of the first `rows` held-out rows (all, if there are fewer), in the random order of epoch 0.

    Every iteration yields the same batches; the graph is traced once. Rows and masks depend on the store, the length
    and the keys of pairs and masking, not on the seed or the number of the phase, and rows are never packed: such runs
    are evaluated on the same rows. Rows that pad the last batch have masked_weights and pair_weights 0. Raises BadInput
    if the split has too few documents.
    """

    def __init__(self, store: Store, word_starts, spec: Spec, rows: int, positions=None):
        spec = spec._replace(max_packed=1, seed=0, phase=0)
        self.pipeline = Pipeline(store, "heldout", word_starts, spec, positions)
        self.rows = min(rows, self.pipeline.epochs.rows_per_epoch())

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        positions, size = self.pipeline.positions, self.pipeline.spec.batch
        last = -(-self.rows // size)
        for steps in windows(0, last, last, len(positions)):
            for step, arrays in zip(steps, self.pipeline(steps, last), strict=True):
                yield batch.zero_padding_rows(arrays, step * size + positions < self.rows)


def steps_per_epoch(epochs: Epochs, spec: Spec) -> int:
    return max(1, epochs.rows_per_epoch() // spec.batch)


def windows(first: int, last: int, epoch: int, pairs: int) -> Iterator[np.ndarray]:
    """Splits steps first..last-1 into arrays of about WINDOW pairs, which bounds the memory for the index.

    epoch: steps per epoch. pairs: pairs per step. An array ends at the end of an epoch; if epochs are shorter than
    SHORT steps, it spans SHORT steps instead.
    """
    while first < last:
        after = first + SHORT if epoch < SHORT else (first // epoch + 1) * epoch
        after = min(after, first + max(1, WINDOW // max(1, pairs)), last)
        yield np.arange(first, after)
        first = after


class Pipeline:
    """A tf.data graph from steps of one split to batches of the rows at `positions`; traced once for all epochs."""

    def __init__(self, store: Store, split: str, word_starts, spec: Spec, positions):
        self.spec, self.documents = spec, store.splits[split]
        self.epochs = Epochs(store, split, spec.rules, spec.max_packed)
        self.positions = np.arange(spec.batch) if positions is None else np.asarray(positions)
        self.special, self.word_starts = store.manifest["special"], np.asarray(word_starts, bool)
        self.tokens = assemble.map_file(self.documents.path / "tokens.npy")
        signature = (
            tf.TensorSpec([None, None, spec.max_packed, len(Rows._fields)], tf.int64),
            tf.TensorSpec([None, None], tf.uint32),
        )
        traced = tf.function(self.make_dataset, signature, autograph=False)
        self.dataset = traced.get_concrete_function()

    def __call__(self, steps: np.ndarray, epoch: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of these steps. epoch: steps per epoch."""
        parts = [
            self.rows(steps[steps // epoch == n] % epoch, n) for n in np.unique(steps // epoch)
        ]
        batches = self.dataset(*map(np.concatenate, zip(*parts, strict=True)))
        batches = batches.with_options(options())
        for arrays in batches.as_numpy_iterator():
            largest, size = arrays["tokens"].max(), len(self.word_starts)
            if largest >= size:
                path = self.documents.path
                raise BadInput(f"{path}: id {largest} is outside the vocabulary of {size} pieces")
            yield arrays | {"rows": self.positions.astype(np.int32)}

    def rows(self, steps: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows, int64[N, B, S, 5], and their keys, uint32[N, B], of N steps of an epoch."""
        epochs, numbers = self.epochs, steps[:, None] * self.spec.batch + self.positions
        key = purpose_key(epochs.split, epochs.rules, int(epoch), "row")
        return epochs.choose(int(epoch), numbers), prng.fold(key, numbers.astype(np.uint32))

    def make_dataset(self, rows, keys) -> tf.data.Dataset:
        batches = tf.data.Dataset.from_tensor_slices((rows, keys))
        batches = batches.map(self.make_batch, num_parallel_calls=THREADS, deterministic=True)
        return batches.prefetch(2)

    def make_batch(self, rows, keys) -> dict[str, tf.Tensor]:
        arrays = assemble.gather(self.tokens, rows, self.spec, self.special)
        inputs = [arrays.pop(name) for name in ("ends", "sizes", "maskable", "begins")]
        mask_id, tokens = self.special["mask"], arrays["tokens"]
        return arrays | masking.mask(self.spec, mask_id, self.word_starts, keys, tokens, *inputs)


def options() -> tf.data.Options:
    """Returns tf.data options with a small private thread pool, which leaves the cores to the training step."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = THREADS
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    return options
