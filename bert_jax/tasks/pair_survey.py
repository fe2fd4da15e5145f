"""Measures the rows of a phase on a sample of a store, and warns, with a remedy, if they do not suit the objective.

Pure NumPy. The cost does not grow with the size of the store.
"""

import numpy as np

from bert_jax.data.dataset import Survey
from bert_jax.data.store import Split
from bert_jax.errors import BadInput
from bert_jax.tasks import documents, masked_rows, packing, pair_rows

PARTS = 64  # ranges of documents in a sample, spread evenly over the store
SENTENCES = 1 << 13  # sentences in each range, about
LEAST_REAL = 0.5  # of real_token_share without a warning
FEW = 100  # pairs; fewer are not judged
MOST_RANDOM = 0.7  # in the original BERT, a little more than half of the pairs are random
LABEL_1 = {"nsp": "a random second sentence", "sop": "swapped sentences"}  # by pair task


def survey(config, split: Split, phase, rules: pair_rows.Rules) -> Survey:
    """Surveys rows of epoch 0. Raises BadInput if all pairs have the same label."""
    pairs, most, key = sample(split, rules), phase.keys.max_packed, f"phases.{phase.name}"
    real = packing.lengths(pairs, rules)
    packed = packing.pack(real, rules.length, most)
    real = np.where(packed < 0, 0, real[packed])
    share, text, warnings = masked_rows.survey(config, phase, real)
    if most > 1:
        text += f", {len(pairs.label) / len(packed):.1f} pairs a row"
    if share < LEAST_REAL:
        remedy = f"reduce {key}.length or raise {key}.max_packed"
        warnings.append(f"rows are {share:.0%} full, the rest is padding: {remedy}")
    if rules.pair_task != "none":
        ratio = float(pairs.label.mean())
        labels = f"{ratio:.0%} of pairs have {LABEL_1[rules.pair_task]} (label 1)"
        text += f", {labels}"
        if len(pairs.label) >= FEW and not 0 < ratio <= MOST_RANDOM:
            reason = f"documents have too few sentences for {key}.length={phase.length}"
            remedy = "check corpus.format and corpus.sentences, or set objective.pair_task=none"
            warnings.append(f"{labels}, expected a little over half: {reason}; {remedy}")
            if ratio in (0, 1):
                raise BadInput(f"config.objective.pair_task={rules.pair_task!r}: {warnings[-1]}")
    return Survey(share, text, warnings)


def sample(split: Split, rules: pair_rows.Rules) -> pair_rows.Rows:
    """Returns rows of epoch 0 from PARTS evenly spread ranges of documents."""
    firsts = np.linspace(0, len(split.document_ends), PARTS, endpoint=False, dtype=np.int64)
    ranges = [np.arange(first, documents.range_end(split, first, SENTENCES)) for first in firsts]
    block = pair_rows.open_block(split, rules, 0, np.unique(np.concatenate(ranges)))
    return pair_rows.make_rows(block, pair_rows.find_chunks(block))
