"""The task of causal language models: rows are consecutive blocks of the documents' tokens, with [SEP] after each one.

There is no [CLS] and no padding. Each epoch cuts the blocks at another offset, which leaves out less than two blocks.
The array next_weights is that of objectives/causal_lm.py.
"""

from bert_jax import prng
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset, Survey, draw_key
from bert_jax.data.store import SPLITS, Store
from bert_jax.errors import BadInput
from bert_jax.tasks.text import documents

DEFAULTS = {}
NEEDS = "sep"  # special tokens


def check(config) -> None:
    """There are no keys to check."""


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py. Raises BadInput if a split has less text than a row needs."""
    if store:
        longest = max(config.phases[name].length for name in config.phase_order)
        for split in store.splits.values():
            check_split(split, longest)

    def shapes(phase, rows: int) -> dict:
        weights = batch.structs({"next_weights": (rows, phase.length)})
        return batch.shapes(rows, phase.length) | weights

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        key = draw_key(config.seed, "cuts", SPLITS.index(split), phase.number, epoch)
        offset = int(prng.below(key, phase.length)[0])
        # The number does not depend on the offset, which is less than a block.
        positions = documents.stream_length(store.splits[split])
        number = (positions + 1) // phase.length - 1
        return documents.Rows(number, lambda numbers: offset + numbers * phase.length)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        part = store.splits[split]
        tokens = assemble.map_file(part.path / "tokens.npy")
        separators = documents.separators(part)
        separator = store.manifest["special"]["sep"]
        return assemble.gather_blocks(tokens, separators, rows, phase.length, separator)

    def survey(phase) -> Survey:
        return Survey(1.0, "100% full", [])

    return Dataset(shapes, SPLITS, rows, make_batch, survey, sequences=lambda phase: 1)


def check_split(split, length: int) -> None:
    """Raises BadInput if the split has no row of this length."""
    total = documents.stream_length(split)
    needed = 2 * length - 1
    if total < needed:
        text = f"{split.path}: {total} tokens, but rows of {length} need {needed} or more"
        raise BadInput(f"{text}: reduce the length, or hold out more")
