"""Batches from step n on, this host's rows only: tf.data over the mapped token store.

A step's row numbers are arithmetic; a permutation of the epoch's index says which rows they are;
then whole batches are gathered from the mapped file, masked and prefetched inside one tf.data graph
with no Python in it. There is no iterator state: step n is a function of (store, spec, n). The next
epoch's index is built in the background.

B rows of this host, L length, P predictions, S pairs a row at most.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import tensorflow as tf

from bert_jax.data import masking, memory_map, pair_at_place
from bert_jax.data.background import Background
from bert_jax.data.batch_spec import Spec
from bert_jax.data.epoch_order import Epoch, Epochs
from bert_jax.data.row_index import never
from bert_jax.data.sentence_pairs import (
    COLUMNS,
    Rows,
    check_rules,
    purpose_key,
    special_pieces,
    unpack,
)
from bert_jax.data.store import Store
from bert_jax.errors import BadInput

WINDOW = 1 << 19  # pairs whose index is read at a time
# Steps; a tf.data iterator takes a tenth of a second to start, so shorter epochs share one.
SHORT = 64

# Accelerators are JAX's: TensorFlow would take all of their memory.
tf.config.set_visible_devices([], "GPU")


def train_batches(
    store: Store,
    word_starts: np.ndarray,
    spec: Spec,
    first: int,
    last: int,
    positions: np.ndarray | None = None,
    threads: int = 2,
) -> Iterator[dict[str, np.ndarray]]:
    """The batches (DESIGN, "The batch contract") of steps first..last-1 of the phase.

    word_starts: bool[V], the pieces that start a word. positions: the rows of the global batch to
    make, in this order; all by default. threads: of tf.data, all together. Raises BadInput at once.
    """
    check(store, "train", word_starts, spec)
    positions = np.arange(spec.batch) if positions is None else np.asarray(positions, np.int64)
    return train(store, word_starts, spec, first, last, positions, threads)


def train(store, word_starts, spec, first, last, positions, threads):
    source = Epochs(store, "train", spec.rules, spec.sequences)
    pipeline = make_pipeline(store, "train", word_starts, spec, threads)
    epoch_steps = steps_per_epoch(source, spec)
    ahead = None
    try:
        for epochs in groups(first, last, epoch_steps):
            opened = ahead.result() if ahead else open_all(source, epochs)
            # Not the one just ended: another host may be some steps behind, and has it mapped.
            source.forget(epochs.start - 1)
            begin, end = epochs.start * epoch_steps, epochs.stop * epoch_steps
            following = range(epochs.stop, min(epochs.stop + len(epochs), -(-last // epoch_steps)))
            ahead = Background(partial(open_all, source, following)) if end < last else None
            pairs = len(positions) * spec.sequences
            for steps in windows(max(first, begin), min(last, end), pairs):
                yield from pipeline(source, opened, steps, epoch_steps, positions)
    finally:
        if ahead:
            ahead.cancel()


def groups(first: int, last: int, epoch_steps: int) -> Iterator[range]:
    """The epochs of steps first..last-1: one at a time or, if they are short, as many as make up
    SHORT steps."""
    size = max(1, SHORT // epoch_steps)
    after = -(-last // epoch_steps)
    for epoch in range(first // epoch_steps, after, size):
        yield range(epoch, min(epoch + size, after))


def open_all(source: Epochs, epochs: range, cancelled=never) -> dict[int, Epoch]:
    return {epoch: source.open(epoch, cancelled) for epoch in epochs}


class Heldout:
    """Batches of the first `rows` held-out rows (all, if fewer) of epoch 0 in its random order,
    each once, whatever the weights; the same at every iteration, and traced only once. Never packed: runs that pack
    and runs that do not are compared on the same rows, bit for bit.

    Rows that only fill the last batch have masked_weights and pair_weights 0. Raises BadInput.
    """

    def __init__(
        self,
        store: Store,
        word_starts: np.ndarray,
        spec: Spec,
        rows: int,
        positions: np.ndarray | None = None,
        threads: int = 2,
    ):
        # Comparable between runs, and all of it is read.
        spec = spec._replace(weights=(), sequences=1)
        check(store, "heldout", word_starts, spec)
        positions = np.arange(spec.batch) if positions is None else positions
        self.positions, self.batch = np.asarray(positions, np.int64), spec.batch
        self.source = Epochs(store, "heldout", spec.rules, spec.sequences)
        self.opened = {0: self.source.open(0)}
        self.rows = min(rows, self.opened[0].rows)
        self.pipeline = make_pipeline(store, "heldout", word_starts, spec, threads)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        steps = -(-self.rows // self.batch)
        for window in windows(0, steps, len(self.positions)):
            yield from self.pipeline(
                self.source, self.opened, window, steps, self.positions, self.rows
            )


def steps_per_epoch(source: Epochs, spec: Spec) -> int:
    return max(1, source.rows_per_epoch() // spec.batch)


def windows(first: int, last: int, pairs: int) -> Iterator[np.ndarray]:
    """Steps first..last-1, of so many pairs each, in arrays of about WINDOW pairs, so that no epoch's
    index is in memory whole."""
    size = max(1, WINDOW // max(1, pairs))
    for begin in range(first, last, size):
        yield np.arange(begin, min(last, begin + size))


def check(store: Store, split: str, word_starts: np.ndarray, spec: Spec) -> None:
    """Raises BadInput if these batches cannot be made; single values are looked at in config_checks.py."""
    # Held-out rows have no weights, see Heldout.
    weights = spec.rules.weights if split == "train" else ()
    check_rules(store.splits[split], spec.rules._replace(weights=weights))
    if store.manifest["vocabulary"] != len(word_starts):
        raise BadInput(
            f"{store.path}: made for {store.manifest['vocabulary']} pieces, the tokenizer has {len(word_starts)}"
        )


def check_ids(ids: np.ndarray, vocabulary: int, path) -> None:
    if ids.max() >= vocabulary:
        raise BadInput(f"{path}: id {ids.max()} is beyond the vocabulary of {vocabulary} pieces")


def make_pipeline(store: Store, split: str, word_starts: np.ndarray, spec: Spec, threads: int):
    """(source, its open epochs, steps[N], steps an epoch, positions[B], rows) -> N batches; traced
    once for all epochs.

    Row numbers from `rows` on only fill the batch and weigh nothing.
    """
    documents, special = store.splits[split], store.manifest["special"]
    pages = memory_map.writable(documents.path / "tokens.npy")
    tokens = tf.experimental.dlpack.from_dlpack(pages.__dlpack__())
    mask = partial(masking.mask, make_masking(spec, special, word_starts))

    def make_batch(positions, index, keys, numbers, weights):
        batch = gather(tokens, index, spec, special)
        which = [batch.pop(name) for name in ("ends", "sizes", "maskable", "begins")]
        batch |= mask(keys, numbers, batch["tokens"], *which)
        batch["masked_weights"] *= weights[:, None]
        batch["pair_weights"] *= weights[:, None]
        return batch | {"rows": positions}

    def make_dataset(positions, *inputs):
        batches = tf.data.Dataset.from_tensor_slices(inputs)
        work = partial(make_batch, positions)
        batches = batches.map(work, num_parallel_calls=threads, deterministic=True)
        return batches.prefetch(2)

    arguments = signature(spec.sequences)
    dataset = tf.function(make_dataset, arguments, autograph=False).get_concrete_function()

    def pipeline(source, opened, steps, epoch_steps, positions, rows=math.inf):
        inputs = window_inputs(source, opened, spec.batch, steps, epoch_steps, positions, rows)
        batches = dataset(positions.astype(np.int32), *inputs).with_options(options(threads))
        for batch in batches.as_numpy_iterator():
            check_ids(batch["tokens"], len(word_starts), documents.path)
            yield batch

    return pipeline


def window_inputs(source: Epochs, opened, batch: int, steps, epoch_steps, positions, rows):
    """What batches are made of: index int64[N, B, S, 3], keys uint32[N, 3], numbers uint32[N, B, S],
    weights float32[N, B]."""
    parts = []
    for epoch in np.unique(steps // epoch_steps).tolist():
        within = steps[steps // epoch_steps == epoch] - epoch * epoch_steps
        numbers = within[:, None] * batch + positions
        chosen, pairs = source.choose(epoch, opened[epoch], numbers)
        key = partial(purpose_key, source.split, source.rules, epoch)
        keys = np.concatenate([key(purpose) for purpose in masking.PURPOSES])
        weights = (numbers < rows).astype(np.float32)
        keys = np.broadcast_to(keys, (len(within), len(keys)))
        parts.append((chosen, keys, pairs, weights))
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def signature(sequences: int) -> list[tf.TensorSpec]:
    return [
        tf.TensorSpec([None], tf.int32),  # positions
        tf.TensorSpec([None, None, sequences, COLUMNS], tf.int64),  # index
        tf.TensorSpec([None, len(masking.PURPOSES)], tf.uint32),  # keys
        tf.TensorSpec([None, None, sequences], tf.uint32),  # numbers
        tf.TensorSpec([None, None], tf.float32),  # weights
    ]


def options(threads: int) -> tf.data.Options:
    """A small pool of its own, so that the batches do not take the cores from the training step."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    return options


def make_masking(spec: Spec, special: dict, word_starts: np.ndarray) -> masking.Masking:
    return masking.Masking(
        kind=spec.masking,
        predictions=spec.predictions,
        rate=spec.mask_rate,
        mask_share=spec.mask_share,
        random_share=spec.random_share,
        mask_id=special["mask"],
        word_starts=np.asarray(word_starts, bool),
    )


def gather(tokens, index, spec: Spec, special: dict) -> dict[str, tf.Tensor]:
    """The rows before masking, [CLS] A [SEP] B [SEP] of one pair after the other; where each pair `ends`, the `sizes`
    of A and B together, which tokens are `maskable` and which of them `begins` A or B."""
    pair = Rows(*unpack(index))
    used = pair.a_length > 0
    lengths = pair.a_length + pair.b_length + special_pieces(spec.pairs)
    ends = tf.cumsum(tf.where(used, lengths, 0), axis=1)
    starts = tf.concat([tf.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
    first_seps = starts + 1 + pair.a_length
    place = tf.range(spec.length, dtype=tf.int64)[None, :]
    owner = pair_at_place.owners(ends, place)
    before_a, before_b = pair.a_start - starts - 1, pair.b_start - first_seps - 1
    values = tf.stack([starts, first_seps, ends - 1, before_a, before_b], axis=2)
    values = tf.unstack(pair_at_place.at(values, owner), axis=2)
    start, first_sep, last_sep, before_a, before_b = values
    in_a = (place > start) & (place < first_sep)
    in_b = (place > first_sep) & (place < last_sep)
    source = tf.where(in_a, before_a, before_b) + place
    ids = tf.cast(tf.gather(tokens, tf.where(in_a | in_b, source, 0)), tf.int32)
    separator = (place == first_sep) | (place == last_sep)
    around = tf.where(separator, special["sep"], special["pad"])
    around = tf.where(place == start, special["cls"], around)
    real = place < ends[:, -1:]
    sequence_ids = 1 if owner is None else owner + 1
    return {
        "tokens": tf.where(in_a | in_b, ids, tf.where(real, around, special["pad"])),
        "segments": tf.cast((place > first_sep) & real, tf.int32),
        "positions": tf.cast(tf.where(real, place - start, 0), tf.int32),
        "sequence_ids": tf.where(real, sequence_ids, 0),
        "cls_positions": tf.cast(tf.where(used, starts, 0), tf.int32),
        "pair_labels": tf.cast(pair.label, tf.int32),
        "pair_weights": tf.cast(used & (spec.pairs != "none"), tf.float32),
        "ends": tf.cast(ends, tf.int32),
        "sizes": tf.cast(pair.a_length + pair.b_length, tf.int32),
        "maskable": in_a | in_b,
        "begins": (place == start + 1) | ((place == first_sep + 1) & in_b),
    }
