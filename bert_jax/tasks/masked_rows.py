"""The config keys that tasks with masked rows share, their checks, and a warning."""

import numpy as np

from bert_jax.config_checks import check_keys, require

DEFAULTS = {
    "masking": "token",  # what is masked at once: token or whole_word
    "mask_rate": 0.15,  # share of tokens that are predicted
    "mask_share": 0.8,  # share of predicted tokens that are replaced by [MASK]
    "random_share": 0.1,  # share replaced by a random token; the rest is unchanged
}
PHASE_DEFAULTS = {
    "max_predictions": 20,  # masked positions per row, at most
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


def number_wanted(mask_rate: float, real: np.ndarray) -> np.ndarray:
    """Returns the number of masked positions that sequences with these numbers of real tokens get, as in masking.py."""
    return np.maximum(1, np.rint(mask_rate * real))


def warnings(phase, wanted: np.ndarray) -> list[str]:
    """Returns a warning if `max_predictions` drops many masked positions. wanted: [R], their numbers in some rows."""
    most = phase.keys.max_predictions
    dropped = 1 - np.minimum(wanted, most).sum() / wanted.sum()
    if dropped <= DROPPED:
        return []
    key = f"phases.{phase.name}.max_predictions={most}"
    return [f"{key} drops {dropped:.0%} of the masked positions: raise it"]
