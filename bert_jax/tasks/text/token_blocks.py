"""The task of causal language models: rows are consecutive blocks of the documents' tokens, with [SEP] after each one.

There is no [CLS]. Rows to train on are full and may hold several documents. Each epoch cuts them at another offset,
which leaves out less than two blocks, and the first token of a row is not predicted.

Held-out rows are windows: the first one begins with a [SEP] before the text, each one with the last token of the one
before it, and the last one ends with padding. So every token, and the [SEP] after each document, is predicted once. If
rows may not cross documents, all rows are windows of one document each, the same in all epochs.

The array next_weights is that of objectives/causal_lm.py.
"""

import numpy as np

from bert_jax import prng
from bert_jax.checks import require
from bert_jax.data import batch, mixture
from bert_jax.data.dataset import A_SIZE, Dataset, Survey, draw_key
from bert_jax.data.store import SPLITS, Store, number_of
from bert_jax.tasks.text import documents

DEFAULTS = {
    # whether a row continues in the next document, after a [SEP]; otherwise it ends with its document, and has padding
    "cross_documents": True,
    **mixture.DEFAULTS,
}
PHASE_DEFAULTS = mixture.PHASE_DEFAULTS
NEEDS = "sep"  # special tokens
SAMPLE = 1 << 16  # rows that are surveyed, at most


def check(config) -> None:
    """Raises BadInput for rows without a token to predict, and for an invalid mixture."""
    mixture.check(config)
    for name, phase in config.phases.items():
        require(phase.length >= 2, f"phases.{name}.length", config, "expected at least 2")


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py. Raises BadInput if there is less text than a row needs."""
    cross_documents = config.task.cross_documents
    if store and cross_documents:
        require_text(config, *documents.stream_range(store.splits[SPLITS[0]]))

    def shapes(phase, rows: int) -> dict:
        weights = batch.structs({"next_weights": (rows, phase.length)})
        return batch.shapes(rows, phase.length) | weights

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        part = store.splits[split]
        begin, end = documents.stream_range(part)
        if not cross_documents:
            ends = documents.separators(part)[part.documents.start : part.documents.stop]
            return windows(begin, ends, phase.length)
        if number_of(split):
            return windows(begin, np.array([end]), phase.length)
        key = draw_key(config.seed, "cuts", 0, phase.text, epoch)
        return full_blocks(begin, end, phase.length, key)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        part = store.splits[split]
        tokens = assemble.map_file(part.path / "tokens.npy")
        separators = documents.separators(part)
        separator = store.manifest["special"]["sep"]
        return assemble.gather_blocks(tokens, separators, rows, phase.length, separator)

    def survey(phase) -> Survey:
        blocks = rows(phase, SPLITS[0], 0)
        numbers = np.arange(0, len(blocks), 1 + len(blocks) // SAMPLE)
        share = float(blocks[numbers][:, A_SIZE].mean() / phase.length)
        return Survey(share, f"{share:.0%} full", [])

    return Dataset(
        shapes=shapes,
        rows=rows,
        make=make_batch,
        survey=survey,
        sequences=lambda phase: 1,
        **mixture.fields(config, store),
    )


def require_text(config, begin: int, end: int) -> None:
    """Raises BadInput if the stream from `begin` to `end` is too short for full rows of a phase."""
    total = end + 1 - begin
    for name in config.phase_order:
        needed = 2 * config.phases[name].length - 1
        hint = f"the text has {total} tokens, such rows need {needed}: reduce it, or add text"
        require(total >= needed, f"phases.{name}.length", config, hint)


def full_blocks(begin: int, end: int, length: int, key: np.ndarray) -> documents.Rows:
    """Returns blocks of the stream from `begin` to `end`, int64[..., 2] start and size, from a random offset on.

    key: uint32[1].
    """
    first = begin + int(prng.below(key, length)[0])
    # The number does not depend on the offset, which is less than a block.
    number = max(0, (end - begin + 2) // length - 1)

    def read(numbers: np.ndarray) -> np.ndarray:
        starts = first + numbers * length
        return np.stack([starts, np.full_like(starts, length)], axis=-1)

    return documents.Rows(number, read)


def windows(begin: int, ends: np.ndarray, length: int) -> documents.Rows:
    """Returns windows of parts of the stream, int64[..., 2] start and size. Windows overlap by one token, so each token
    of a part is predicted once.

    begin: where the first part begins.
    ends: int64[N], the last separator of each part. The windows of a part begin with the separator before it; for the
        first one of the stream, that is -1.
    """
    before = np.concatenate([[begin - 1], ends[:-1]])
    counts = -(-(ends - before) // (length - 1))
    stops = np.cumsum(counts)

    def read(numbers: np.ndarray) -> np.ndarray:
        part = np.searchsorted(stops, numbers, "right")
        window = numbers - (stops - counts)[part]
        starts = before[part] + window * (length - 1)
        sizes = np.minimum(length, ends[part] + 1 - starts)
        return np.stack([starts, sizes], axis=-1)

    return documents.Rows(int(stops[-1]), read)
