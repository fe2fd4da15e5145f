"""Measures the rows of a phase on a sample of a store, and warns, with a remedy, if they do not suit the objective.

Pure NumPy. The cost does not grow with the size of the store.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data.dataset import Survey
from bert_jax.data.store import Split
from bert_jax.errors import BadInput
from bert_jax.tasks.packing import pack
from bert_jax.tasks.pair_rows import Rules, count_special_tokens, sample

PARTS = 64  # ranges of documents in a sample, spread evenly over the store
SENTENCES = 1 << 13  # sentences in each range, about
LEAST_REAL = 0.5  # of real_token_share without a warning
FEW = 100  # pairs; fewer are not judged
MOST_RANDOM = 0.7  # in the original BERT, a little more than half of the pairs are random
CUT = 0.05  # share of the chosen positions that `max_predictions` may drop without a warning


class Sample(NamedTuple):
    """Statistics of a sample of a phase's rows."""

    rows: int
    pairs: int  # or single segments; more than rows if these are packed
    real_token_share: float
    pair_ratio: float  # share of the pairs with label 1; 0 without pairs
    wanted: float  # mean number of masked positions per row by mask_rate
    given: float  # the same, limited to max_predictions


def survey(config, split: Split, phase, rules: Rules) -> Survey:
    """Surveys the rows of a phase. Raises BadInput if all pairs have the same label."""
    rows = draw_sample(split, rules, phase.keys, config.task.mask_rate)
    packed = f", {rows.pairs / rows.rows:.1f} pairs a row" if phase.keys.max_packed > 1 else ""
    text = f"{rows.real_token_share:.0%} full{packed}, {rows.pair_ratio:.0%} of pairs have label 1"
    return Survey(rows.real_token_share, text, warnings(config, phase, rows))


def draw_sample(split: Split, rules: Rules, keys, mask_rate: float) -> Sample:
    """Samples rows of epoch 0. keys: of the phase."""
    pairs = sample(split, rules, PARTS, SENTENCES)
    real = pairs.a_length + pairs.b_length + count_special_tokens(rules.pair_task)
    packed = pack(real, rules.length, keys.max_packed)
    # As in masking.py, after the original code: at least one, rounded half to even.
    wanted = np.maximum(1, np.rint(mask_rate * real))
    wanted = np.where(packed < 0, 0, wanted[packed]).sum(axis=1)
    return Sample(
        rows=len(packed),
        pairs=len(real),
        real_token_share=float(real.sum() / len(packed) / rules.length),
        pair_ratio=float((pairs.label != 0).mean()),
        wanted=float(wanted.mean()),
        given=float(np.minimum(wanted, keys.max_predictions).mean()),
    )


def warnings(config, phase, rows: Sample) -> list[str]:
    """Returns warnings about the rows of a phase. Raises BadInput if all pairs have the same label."""
    found, key = [], f"phases.{phase.name}"
    if rows.real_token_share < LEAST_REAL:
        found.append(
            f"rows are {rows.real_token_share:.0%} full, the rest is padding: reduce {key}.length or raise"
            f" {key}.max_packed"
        )
    if rows.given < (1 - CUT) * rows.wanted:
        found.append(
            f"{key}.max_predictions={phase.keys.max_predictions} drops {1 - rows.given / rows.wanted:.0%} of the masked"
            " positions: raise it"
        )
    pairs = config.objective.pair_task
    # The share of label 1 shows whether pairs can be learnt from; in a few pairs it is not significant.
    if pairs != "none" and rows.pairs >= FEW and not 0.0 < rows.pair_ratio <= MOST_RANDOM:
        text = (
            f"{rows.pair_ratio:.0%} of {rows.pairs} pairs have label 1, expected a little over half: documents have too"
            f" few sentences for {key}.length={phase.length}; check corpus.format and corpus.sentences, or set"
            " objective.pair_task=none"
        )
        if rows.pair_ratio in (0.0, 1.0):
            raise BadInput(f"config.objective.pair_task={pairs!r}: {text}")
        found.append(text)
    return found
