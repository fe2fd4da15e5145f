"""What tasks with masked rows share: config keys and their checks, the rows of index files, masking, statistics."""

import numpy as np

from bert_jax.config_checks import check_keys, require
from bert_jax.data.dataset import Survey
from bert_jax.data.row_index import Indexes, damaged
from bert_jax.tasks import documents
from bert_jax.tokenizers import tokenizer

DEFAULTS = {
    "masking": "token",  # what is masked at once: token or whole_word
    "mask_rate": 0.15,  # share of tokens that are predicted
    "mask_share": 0.8,  # share of predicted tokens that are replaced by [MASK]
    "random_share": 0.1,  # share replaced by a random token; the rest is unchanged
}
PHASE_DEFAULTS = {
    "max_predictions": 20  # masked positions per row, at most
}
DROPPED = 0.05  # share of the chosen positions that `max_predictions` may drop without a warning


def check(config, special: int) -> None:
    """Raises BadInput for the first of the keys that has an invalid value. special: tokens of a row never masked."""
    check_keys(
        config,
        choices={"task.masking": ("token", "whole_word")},
        shares=("task.mask_rate",),
        not_negative=("task.mask_share", "task.random_share"),
    )
    shares = config.task.mask_share + config.task.random_share
    require(shares <= 1, "task.random_share", config, "expected at most 1 - mask_share")
    for name, phase in config.phases.items():
        most, key = phase.length - special, f"phases.{name}.max_predictions"
        hint = f"expected 1 to {most} in a row of {phase.length} tokens"
        require(1 <= phase.max_predictions <= most, key, config, hint)


def pair_task(config) -> str:
    """Returns nsp, sop or none; none for an objective that knows no pairs."""
    return config.objective.get("pair_task", "none")


def indexed(indexes: list[Indexes], epoch: int, length: int, tokens: int, read=None):
    """Returns the documents.Rows of an epoch from mapped index files, which are built if they are missing.

    The last file has as many rows as the epoch. read: (numbers, *files) -> their rows, see documents.sequence_sizes; by
    default those of the only file. Reading raises BadInput for a row that is empty, exceeds `length`, or ends after
    `tokens`.
    """
    files = [index.open(epoch) for index in indexes]

    def checked(numbers: np.ndarray) -> np.ndarray:
        rows = read(numbers, *files) if read else files[0][numbers]
        starts, sizes = rows[..., 0:4:2], rows[..., 1:4:2]
        real = documents.sequence_sizes(rows).reshape(*numbers.shape, -1).sum(axis=-1)
        outside = (starts < 0) | (sizes < 0) | (starts + sizes > tokens)
        if outside.any() or (real < 1).any() or (real > length).any():
            raise damaged(indexes, epoch)
        return rows

    return documents.Rows(len(files[-1]), checked)


def mask(config, phase, store, word_starts: np.ndarray | None, keys, arrays: dict) -> dict:
    """Masks rows of assemble.py: returns the arrays of a batch, as TensorFlow operations.

    word_starts: bool[V], the pieces that start a word; None: those of the store's tokenizer.
    """
    from bert_jax.data import masking

    if word_starts is None:
        word_starts = tokenizer.load(store.path / "tokenizer").word_starts
    most, special = phase.keys.max_predictions, store.manifest["special"]
    return masking.apply(config.task, most, special, word_starts, keys, arrays)


def survey(config, phase, real: np.ndarray) -> Survey:
    """Surveys a sample of rows; warns if `max_predictions` drops many masked positions.

    real: int64[R, S], the tokens of each packed sequence with its special tokens; 0 for an absent one.
    """
    share, most = float(real.sum() / len(real) / phase.length), phase.keys.max_predictions
    # As in masking.py.
    wanted = np.where(real, np.maximum(1, np.rint(config.task.mask_rate * real)), 0).sum(axis=1)
    dropped = 1 - np.minimum(wanted, most).sum() / wanted.sum()
    text = f"phases.{phase.name}.max_predictions={most} drops {dropped:.0%} of the masked positions"
    return Survey(share, f"{share:.0%} full", [f"{text}: raise it"] if dropped > DROPPED else [])
