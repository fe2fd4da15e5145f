"""RoBERTa's task: rows of whole sentences that fill the length, [CLS] sentences [SEP], masked; there are no pairs.

Sentences are taken in order while they fit. Rows cross documents, with a separator between two (FULL-SENTENCES), or
end with their document (DOC-SENTENCES). A sentence that is longer than a row continues in the next ones, so every token
of a split is in exactly one row of an epoch. A row ends with its block of documents (documents.BLOCK sentences).

An index is int64[R, 2]: where each row starts in the stream of documents.py, and its size there, without [CLS] and the
last [SEP]. A row never starts or ends with a separator.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.config_checks import require
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset, Survey, draw_key
from bert_jax.data.row_index import Indexes, digest, index_directory
from bert_jax.data.store import SPLITS, Split, Store
from bert_jax.objectives import mlm_batch
from bert_jax.tasks import documents, masked_rows

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
    pair_task, hint = masked_rows.pair_task(config), "expected none for full_sentences"
    require(pair_task == "none", "objective.pair_task", config, hint)


def make(config, store: Store | None = None, word_starts: np.ndarray | None = None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py. word_starts: see masked_rows.mask."""

    def shapes(phase, rows: int) -> dict:
        own = {mlm_batch.MASKED: (rows, phase.keys.max_predictions)}
        return batch.shapes(rows, phase.length) | batch.structs(own)

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        part = store.splits[split]
        rules = Rules(phase.length - SPECIAL, config.task.cross_documents)
        key = partial(draw_key, config.seed, "cuts", SPLITS.index(split), phase.number)
        name = f"{split}-{phase.length}-{digest(store, VERSION, rules, int(key(0)[0]))}"
        parts = partial(build, part, rules, key)
        index = Indexes(index_directory(store.path), name, np.int64, 2, parts)
        stream = documents.stream_length(part)
        return masked_rows.indexed([index], epoch, phase.length, stream)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        part, special = store.splits[split], store.manifest["special"]
        tokens, separators = assemble.map_file(part.path / "tokens.npy"), documents.separators(part)
        arrays = assemble.gather_range(tokens, separators, rows, phase.length, special)
        return masked_rows.mask(config, phase, store, word_starts, keys, arrays)

    def survey(phase) -> Survey:
        made = rows(phase, SPLITS[0], 0)
        sample = np.linspace(0, len(made) - 1, min(SAMPLE, len(made)), dtype=np.int64)
        return masked_rows.survey(config, phase, made[sample][:, 1:] + SPECIAL)

    return Dataset(shapes, SPLITS, rows, make_batch, survey)


def build(split: Split, rules: Rules, key: Callable, epoch: int) -> Iterator[np.ndarray]:
    """Yields the index of an epoch in order, in parts int64[r, 2]. key: epoch -> uint32[1], of the draws."""
    for numbers in documents.ranges(split):
        yield cut(split, rules, prng.fold(key(epoch), numbers[:1].astype(np.uint32)), numbers)


def cut(split: Split, rules: Rules, key: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows of some consecutive documents, int64[R, 2]. numbers: theirs."""
    begins, ends, owner, _, lasts = documents.sentences(split, numbers)
    begins, ends = begins + numbers[owner], ends + numbers[owner]  # in the stream
    count = len(ends)
    document_ends = np.full(count, count) if rules.cross_documents else lasts[owner] + 1
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
