"""Batches of a task without a tokenizer, and the stream of a split's documents, one token at a time."""

import numpy as np
from kits.stores import SPECIAL
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import stream

V = 1000  # pieces
LAST = 10**9  # steps of the phase
WORD_STARTS = np.arange(V) % 3 > 0


def settings(length, seed=1, **task):
    """Returns a config of one phase."""
    masking = dict(masking="token", mask_rate=0.15, mask_share=0.8, random_share=0.1)
    masking |= dict(name="", heldout_mask_rate=0.0)
    masking |= dict(mixture="")
    corpus = dict(source="", heldout_source="", heldout_by="hash")
    keys = dict(task=masking | task, corpus=corpus, phase_order=("main",))
    keys |= dict(model=dict(name="bert"), objective={})
    return ConfigDict(keys | dict(seed=seed, phases=dict(main=dict(length=length))))


def phase(length, batch=8, predictions=5, number=0, **keys):
    keys = ConfigDict(dict(max_predictions=predictions, mask_rate=0.0, mixture="") | keys)
    return configs.Phase("main", number, 0, LAST, length, batch, keys, text=number)


def all_rows(dataset, shape, epoch=0, split="train"):
    rows = dataset.rows(shape, split, epoch)
    return rows[np.arange(len(rows))]


def unmasked(batch):
    """Returns int32[B, L], the tokens before masking."""
    tokens = batch["tokens"].copy()
    row, slot = np.nonzero(batch["masked_weights"])
    tokens[row, batch["masked_positions"][row, slot]] = batch["masked_targets"][row, slot]
    return tokens


def chosen(batch):
    """Returns bool[B, L], whether a token is predicted."""
    places = np.zeros(batch["tokens"].shape, bool)
    row, slot = np.nonzero(batch["masked_weights"])
    places[row, batch["masked_positions"][row, slot]] = True
    return places


def batches(dataset, shape, first, last, positions=None, seed=1):
    pipeline = stream.Pipeline(dataset, shape, "train", seed, shape.batch, positions)
    return list(stream.batches(pipeline, first, last))


def assemble(dataset, shape, rows, keys=None, split="train"):
    """Returns the batch of these rows, int64[B, ...], in order."""
    keys = np.arange(len(rows), dtype=np.uint32) if keys is None else keys
    return {n: a.numpy() for n, a in dataset.make(shape, split, rows, keys).items()}


def document_stream(documents):
    """Returns all ids of documents, with a separator after each."""
    ids = []
    for document in documents:
        for sentence in document:
            ids += sentence
        ids.append(SPECIAL["sep"])
    return ids


def check_starts_and_hosts(make, steps):
    """Asserts that batches are the same from any step on, and that hosts have their rows of them.

    make: (first, last, positions=None) -> the batches of steps first..last-1, at least six rows each.
    """
    batches = make(0, steps)
    for first in (1, steps // 2, steps - 2):
        assert_same(make(first, steps), batches[first:])
    for positions in ([0, 5], [3, 1, 2, 4]):
        expected = [{name: x[positions] for name, x in batch.items()} for batch in batches[7:]]
        assert_same(make(7, steps, np.array(positions)), expected)


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
