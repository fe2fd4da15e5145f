"""Measures the rows of a phase on a spread sample of a store: share of real tokens, pairs, predictions.

NumPy, pure; the cost of a sample does not grow with the store.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data.batch_spec import Spec
from bert_jax.data.packing import pack
from bert_jax.data.sentence_pairs import sample, special_pieces
from bert_jax.data.store import Store

PARTS = 64  # a sample is this many stretches, spread evenly
SENTENCES = 1 << 13  # of a stretch whose rows are made, about


class RowSurvey(NamedTuple):
    """Numbers of a sample of a phase's rows."""

    rows: int
    pairs: int  # or single segments; more than rows where these are packed
    real_token_share: float  # real tokens, with [CLS] and [SEP], by row length
    pair_ratio: float  # share of the pairs with label 1; 0 without pairs
    wanted: float  # masked positions a row that the rate asks for, on average
    given: float  # of those, the ones that fit into `predictions`


def survey_rows(store: Store, spec: Spec) -> RowSurvey:
    pairs = sample(store.splits["train"], spec.rules, PARTS, SENTENCES)
    real = pairs.a_length + pairs.b_length + special_pieces(spec.pair_task)
    packed = pack(real, spec.length, spec.max_packed)
    # As masking.py counts them, from the original: at least one, rounded half to even.
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
