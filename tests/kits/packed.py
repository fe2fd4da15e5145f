"""A store of short sentence pairs, its packed batches, and the same pairs unpacked."""

import numpy as np
from kits import pairs, rows
from kits.stores import make_store, random_documents

from bert_jax.tasks.text import mlm_batch

V = 200
WORD_STARTS = np.arange(V) % 3 > 0
SHAPE = dict(length=32, batch=4, max_predictions=9, max_packed=4)
SPEC = pairs.Spec(seed=5, phase=0, short_rate=0.2, **SHAPE)


def packed_store(path):
    """Returns a store with about a hundred pairs of 5 to 32 tokens per epoch, or 60 packed rows."""
    documents = random_documents(60, sentences=6, words=8)
    documents = [[[5 + i % (V - 5) for i in s] for s in document] for document in documents]
    return make_store(path, documents[:50], documents[50:], vocabulary=V)


def make(store, first, last, positions=None, **changes):
    spec = SPEC._replace(**changes)
    return list(pairs.train_batches(store, WORD_STARTS, spec, first, last, positions))


def epoch(store, **changes):
    """Returns all rows of the first epoch as one batch."""
    spec = SPEC._replace(**changes)
    number = len(pairs.epoch_rows(store, spec))
    (batch,) = make(store, 0, 1, **{**changes, "batch": number})
    return batch


def one_pair_per_row(batch):
    """Returns the sequences of a batch in order, each in its own row. It may have no pairs and no masks."""
    no_masks = dict.fromkeys(mlm_batch.MASKED_ARRAYS.split(), np.zeros((len(batch["tokens"]), 0)))
    no_pairs = dict.fromkeys(
        ("pair_labels", "pair_weights"), np.zeros(batch["cls_positions"].shape)
    )
    batch = no_masks | no_pairs | batch
    length = batch["tokens"].shape[1]
    predictions = batch["masked_weights"].shape[1]
    row, pair = np.nonzero(np.arange(1, 99) <= batch["sequence_ids"].max(1)[:, None])
    shapes = mlm_batch.shapes(len(row), length, predictions)
    separate = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    for number, (r, p) in enumerate(zip(row, pair, strict=True)):
        span = np.flatnonzero(batch["sequence_ids"][r] == p + 1)
        assert span[0] == batch["cls_positions"][r, p]
        for name in ("tokens", "segments", "positions"):
            separate[name][number, : len(span)] = batch[name][r, span]
        separate["sequence_ids"][number, : len(span)] = 1
        slots = np.isin(batch["masked_positions"][r], span) & (batch["masked_weights"][r] > 0)
        for name in ("masked_positions", "masked_targets", "masked_weights"):
            separate[name][number, : slots.sum()] = batch[name][r, slots]
        separate["masked_positions"][number, : slots.sum()] -= span[0]
        for name in ("pair_labels", "pair_weights"):
            separate[name][number, 0] = batch[name][r, p]
    separate["rows"] = np.arange(len(row), dtype=np.int32)
    separate["row_weights"] = np.ones(len(row), np.float32)
    return separate


def without_masks(batch, masking):
    """Returns the batch with its original tokens, and only the number of predictions of each row.

    With whole words, which are drawn, that number depends on the row.
    """
    number = (batch["masked_weights"] > 0).sum(1) * (masking == "token")
    batch = batch | {"tokens": rows.unmasked(batch), "masked_weights": number}
    del batch["masked_positions"], batch["masked_targets"]
    return batch


def sorted_rows(batch):
    """Returns the rows of a batch sorted by their content."""
    names = [name for name in sorted(batch) if name != "rows"]
    flat = np.concatenate([batch[name].reshape(len(batch["rows"]), -1) for name in names], axis=1)
    order = np.lexsort(flat.T)
    return {name: batch[name][order] for name in names}
