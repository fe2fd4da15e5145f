"""RoBERTa's task: rows of whole sentences that fill the length, [CLS] sentences [SEP], masked; there are no pairs.

Sentences are taken in order while they fit. Rows cross documents, with a separator between two (FULL-SENTENCES), or
end with their document (DOC-SENTENCES). A sentence that is longer than a row continues in the next ones, so every token
of a split is in exactly one row of an epoch. A row ends with its block of documents (pair_rows.BLOCK sentences).

An index is int64[R, 2]: where each row starts in the stream of documents.py, and its size there, without [CLS] and the
last [SEP]. A row never starts or ends with a separator.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.config_checks import require
from bert_jax.data import batch, row_index
from bert_jax.data.dataset import Dataset, Survey, draw_key
from bert_jax.data.store import SPLITS, Split, Store
from bert_jax.objectives import mlm_batch
from bert_jax.tasks import documents, masked_rows
from bert_jax.tasks.pair_rows import document_ranges
from bert_jax.tokenizers import tokenizer

DEFAULTS = {
    **masked_rows.DEFAULTS,
    # whether a row continues in the next document, after a [SEP]; otherwise it ends with its document
    "cross_documents": True,
}
PHASE_DEFAULTS = masked_rows.PHASE_DEFAULTS

SPECIAL = 2  # tokens of a row besides its range of the stream: [CLS] and the last [SEP]
VERSION = 1  # of the algorithm that makes rows; part of an index's name
# Of rows that cross documents, one in this many takes a random number of the sentences that fit. Otherwise all epochs
# would have the same rows: two epochs that start apart meet after about a hundred rows, and then stay together.
RESTART = 128
SAMPLE = 1 << 16  # rows that are surveyed


class Rules(NamedTuple):
    """The settings that decide the rows of an epoch."""

    room: int  # tokens and separators of a row, at most
    cross_documents: bool


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    masked_rows.check(config, SPECIAL)
    hint = "task.name='full_sentences' has no pairs: set it to none"
    require(
        config.objective.get("pair_task", "none") == "none", "objective.pair_task", config, hint
    )


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py."""
    words = store and tokenizer.load(store.path / "tokenizer").word_starts
    return dataset(config, store, words)


def dataset(config, store: Store | None, word_starts: np.ndarray | None) -> Dataset:
    """Returns the dataset. word_starts: bool[V], the pieces that start a word."""
    separators = cache(lambda split: documents.separators(store.splits[split]))

    def shapes(phase, rows: int) -> dict:
        own = {mlm_batch.MASKED: (rows, phase.keys.max_predictions)}
        return batch.shapes(rows, phase.length) | batch.structs(own)

    def rows(phase, split: str, epoch: int) -> "EpochRows":
        return EpochRows(config, store, phase, split, epoch)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble, masking

        special = store.manifest["special"]
        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        arrays = assemble.gather_range(tokens, separators(split), rows, phase.length, special)
        most = phase.keys.max_predictions
        return masking.apply(config.task, most, special, word_starts, keys, arrays)

    def survey(phase) -> Survey:
        made = rows(phase, SPLITS[0], 0)
        sample = np.linspace(0, len(made) - 1, min(SAMPLE, len(made)), dtype=np.int64)
        real = made[sample][:, 1] + SPECIAL
        share = float(real.mean() / phase.length)
        wanted = masked_rows.number_wanted(config.task.mask_rate, real)
        return Survey(share, f"{share:.0%} full", masked_rows.warnings(phase, wanted))

    return Dataset(shapes, SPLITS, rows, make_batch, survey)


class EpochRows:
    """The rows of an epoch, from a mapped index: `rows[numbers]`, int64[...] -> int64[..., 2]."""

    def __init__(self, config, store: Store, phase, split: str, epoch: int):
        """Maps the index of the epoch, and builds it if it is missing."""
        self.split, self.epoch = store.splits[split], epoch
        self.rules = Rules(phase.length - SPECIAL, config.task.cross_documents)

        def key(epoch: int) -> np.ndarray:
            return draw_key(config.seed, "cuts", SPLITS.index(split), phase.number, epoch)

        def build_epoch(epoch: int) -> Iterator[np.ndarray]:
            return build(self.split, self.rules, key(epoch))

        digest = row_index.digest(store, VERSION, self.rules, int(key(0)[0]))
        name = f"{split}-{phase.length}-{digest}"
        directory = row_index.index_directory(store.path)
        self.index = row_index.Indexes(directory, name, np.int64, 2, build_epoch)
        self.rows = self.index.open(epoch)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        """Raises BadInput if the index is damaged."""
        rows = self.rows[numbers]
        start, size = rows[..., 0], rows[..., 1]
        bad = (start < 0) | (size < 1) | (size > self.rules.room)
        bad |= start + size >= documents.stream_length(self.split)
        if bad.any():
            raise row_index.damaged([self.index], self.epoch)
        return rows


def build(split: Split, rules: Rules, key: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the index of an epoch in order, in parts int64[r, 2]. key: uint32[1], of the draws."""
    for numbers in document_ranges(split):
        yield cut(split, rules, prng.fold(key, numbers[:1].astype(np.uint32)), numbers)


def cut(split: Split, rules: Rules, key: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows of some consecutive documents, int64[R, 2]. numbers: theirs."""
    begins, ends, document_ends = documents.sentences(split, numbers)
    count = len(ends)
    if rules.cross_documents:
        document_ends = np.full(count, count)
    draws = prng.uniform(prng.fold(key, np.arange(count, dtype=np.uint32))).tolist()
    # Lists are faster than arrays in the loop. After the last sentence, none begins.
    begins, ends, document_ends = [*begins.tolist(), None], ends.tolist(), document_ends.tolist()
    rows, sentence, start = [], 0, begins[0]
    while sentence < count:
        limit = start + rules.room
        most = min(document_ends[sentence], sentence + rules.room)
        after = bisect_right(ends, limit, sentence, most)  # the first sentence that does not fit
        if after == sentence:  # it is longer than the row, and continues in the next one
            rows.append((start, rules.room))
            start = limit
            continue
        if rules.cross_documents and len(rows) % RESTART == 0:
            after -= int(draws[sentence] * (after - sentence))
        rows.append((start, ends[after - 1] - start))
        sentence, start = after, begins[after]
    return np.array(rows)
