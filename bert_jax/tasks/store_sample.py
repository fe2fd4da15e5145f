"""Measures the rows of a phase on a sample of a store: share of real tokens, pairs, predictions.

Pure NumPy. The cost does not grow with the size of the store.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data.store import Store
from bert_jax.tasks.batch_spec import Spec
from bert_jax.tasks.packing import pack
from bert_jax.tasks.sentence_pairs import count_special_tokens, sample

PARTS = 64  # ranges of documents in a sample, spread evenly over the store
SENTENCES = 1 << 13  # sentences in each range, about


class RowSurvey(NamedTuple):
    """Statistics of a sample of a phase's rows."""

    rows: int
    pairs: int  # or single segments; more than rows if these are packed
    real_token_share: float  # mean share of a row that is not padding; [CLS] and [SEP] are real
    pair_ratio: float  # share of the pairs with label 1; 0 without pairs
    wanted: float  # mean number of masked positions per row by mask_rate
    given: float  # the same, limited to max_predictions


def survey_rows(store: Store, spec: Spec) -> RowSurvey:
    """Samples rows of epoch 0 of the training split, and returns their statistics."""
    pairs = sample(store.splits["train"], spec.rules, PARTS, SENTENCES)
    real = pairs.a_length + pairs.b_length + count_special_tokens(spec.pair_task)
    packed = pack(real, spec.length, spec.max_packed)
    # As in masking.py, after the original code: at least one, rounded half to even.
    wanted = np.maximum(1, np.rint(spec.mask_rate * real))
    wanted = np.where(packed < 0, 0, wanted[packed]).sum(axis=1)
    return RowSurvey(
        rows=len(packed),
        pairs=len(real),
        real_token_share=float(real.sum() / len(packed) / spec.length),
        pair_ratio=float((pairs.label != 0).mean()),
        wanted=float(wanted.mean()),
        given=float(np.minimum(wanted, spec.max_predictions).mean()),
    )
