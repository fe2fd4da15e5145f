"""What tasks with masked rows share: config keys and their checks, the rows of index files, masking, statistics.

B rows, S packed sequences of a row at most.
"""

from collections.abc import Callable

import numpy as np

from bert_jax.checks import check_keys, require
from bert_jax.data import batch, mixture
from bert_jax.data.dataset import A_SIZE, A_START, LABEL, Dataset, Survey
from bert_jax.data.row_index import Indexes, damaged
from bert_jax.data.store import SPLITS, Store, number_of
from bert_jax.tasks.text import documents, mlm_batch
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = {
    # what is masked at once: token, whole_word, ngram (1 to 3 words) or span (1 to 10 words, which share the draw of
    # what replaces them)
    "masking": "token",
    "mask_rate": 0.15,  # share of tokens that are predicted
    "heldout_mask_rate": 0.0,  # the same in held-out rows, of all phases; 0: as mask_rate
    "mask_share": 0.8,  # share of predicted tokens that are replaced by [MASK]
    "random_share": 0.1,  # share replaced by a random token; the rest is unchanged
    **mixture.DEFAULTS,
}
PHASE_DEFAULTS = {
    "max_predictions": 20,  # masked positions per row, at most
    "mask_rate": 0.0,  # share of tokens that are predicted in this phase; 0: task.mask_rate
    **mixture.PHASE_DEFAULTS,
}
NEEDS = "pad cls sep mask"  # special tokens
SAMPLE = 1 << 16  # rows that are surveyed, at most
DROPPED = 0.05  # share of the chosen positions that `max_predictions` may drop without a warning


def check(config, paired: bool = False) -> None:
    """Raises BadInput for the first of the keys that has an invalid value. paired: whether rows have pairs."""
    check_keys(
        config,
        choices={"task.masking": ("token", "whole_word", "ngram", "span")},
        shares=("task.mask_rate", "task.heldout_mask_rate"),
        not_negative=("task.mask_share", "task.random_share"),
    )
    mixture.check(config)
    shares = config.task.mask_share + config.task.random_share
    require(shares <= 1, "task.random_share", config, "expected at most 1 - mask_share")
    special = frame_of(config).size(1 + paired)
    for name, phase in config.phases.items():
        check_keys(config, shares=(f"phases.{name}.mask_rate",))
        is_valid = 5 <= phase.length < 1 << 16
        require(is_valid, f"phases.{name}.length", config, "expected 5 to 65535")
        most = phase.length - special
        is_valid = 1 <= phase.max_predictions <= most
        hint = f"expected 1 to {most} in a row of {phase.length} tokens"
        require(is_valid, f"phases.{name}.max_predictions", config, hint)


def open_rows(
    indexes: list[Indexes], epoch: int, length: int, special: int, tokens: int, read: Callable
) -> documents.Rows:
    """Returns the documents.Rows of an epoch from mapped index files, which are built if they are missing.

    Reading raises BadInput for a row that is empty, exceeds `length`, or ends after `tokens`.

    indexes: the last one has as many rows as the epoch.
    special: see documents.sequence_sizes.
    read: (numbers, *files) -> the rows with these numbers, see documents.sequence_sizes.
    """
    files = [index.open(epoch) for index in indexes]

    def read_valid(numbers: np.ndarray) -> np.ndarray:
        rows = read(numbers, *files)
        starts = rows[..., A_START:LABEL:2]  # of A and, if there is one, of B
        sizes = rows[..., A_SIZE:LABEL:2]
        is_outside = (starts < 0) | (sizes < 0) | (starts + sizes > tokens)
        sequences = documents.sequence_sizes(rows, special).reshape(*numbers.shape, -1)
        row_sizes = sequences.sum(axis=-1)
        has_wrong_size = (row_sizes < 1) | (row_sizes > length)
        if is_outside.any() or has_wrong_size.any():
            raise damaged(indexes, epoch)
        return rows

    return documents.Rows(len(files[-1]), read_valid)


def of_ranges(config, store: Store | None, word_starts, rows: Callable, packed=False) -> Dataset:
    """Returns the dataset of rows that are ranges of the stream of documents.py, in a frame.

    word_starts: see `mask`.
    rows: (phase, split, epoch) -> int64[R, 2], start and size of each range in the stream.
    packed: whether each document is a sequence of its own, and the stream has the frames' tokens between two.
    """
    frame = frame_of(config)
    hint = f"rows of running text need a frame with one token at its end, not {frame.end}"
    require(len(frame.end) == 1, "model.name", config, hint)

    def sequences(phase) -> int:
        if not packed:
            return 1
        # As many as fit of one token in its frame; 2 or more mark rows as packed.
        return max(2, phase.length // (1 + frame.size()))

    def shapes(phase, rows: int) -> dict:
        masked = batch.structs({mlm_batch.MASKED_ARRAYS: (rows, phase.keys.max_predictions)})
        return batch.shapes(rows, phase.length, sequences(phase)) | masked

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        part = store.splits[split]
        tokens = assemble.map_file(part.path / "tokens.npy")
        separators = documents.separators(part, frame.size() if packed else 1)
        special = store.manifest["special"]
        around = frame.ids(special), special["pad"]
        arrays = assemble.gather_range(
            tokens, separators, rows, phase.length, *around, sequences(phase)
        )
        return mask(config, phase, split, store, word_starts, keys, arrays)

    def survey_rows(phase) -> Survey:
        ranges = rows(phase, SPLITS[0], 0)
        numbers = np.arange(0, len(ranges), 1 + len(ranges) // SAMPLE)
        sizes = ranges[numbers][:, [A_SIZE]]
        return survey(config, phase, sizes + frame.size())

    return Dataset(
        shapes=shapes,
        rows=rows,
        make=make_batch,
        survey=survey_rows,
        sequences=sequences,
        **mixture.fields(config, store),
    )


def mask(config, phase, split: str, store, word_starts, keys, arrays: dict) -> dict:
    """Masks rows of assemble.py: returns the arrays of a batch, as TensorFlow operations.

    word_starts: bool[V], the pieces that start a word; None: those of the store's tokenizer.
    """
    from bert_jax.data import masking

    if word_starts is None:
        word_starts = store.tokenizer.word_starts
    rate = mask_rate(config, phase, split)
    predictions = phase.keys.max_predictions
    special = store.manifest["special"]
    return masking.apply(config.task, rate, predictions, special, word_starts, keys, arrays)


def mask_rate(config, phase, split: str) -> float:
    """Returns the share of tokens that are predicted in rows of a split."""
    rate = config.task.heldout_mask_rate
    if not number_of(split):
        rate = phase.keys.mask_rate
    return rate or config.task.mask_rate


def survey(config, phase, real: np.ndarray) -> Survey:
    """Surveys a sample of rows; warns if `max_predictions` drops many masked positions.

    real: int64[R, S], the tokens of each packed sequence with its special tokens; 0 for an absent one.
    """
    share = float(real.sum() / len(real) / phase.length)
    most = phase.keys.max_predictions
    rate = max(mask_rate(config, phase, split) for split in SPLITS)
    predicted = np.maximum(1, np.rint(rate * real))  # as in masking.py
    wanted = np.where(real, predicted, 0).sum(axis=1)
    dropped = 1 - np.minimum(wanted, most).sum() / wanted.sum()
    warnings = []
    if dropped > DROPPED:
        key = f"phases.{phase.name}.max_predictions={most}"
        warnings.append(f"{key} drops {dropped:.0%} of the masked positions: raise it")
    return Survey(share, f"{share:.0%} full", warnings)
