"""Measures the rows of a phase on a sample of a store, and warns, with a remedy, if they do not suit the objective.

Pure NumPy. The cost does not grow with the size of the store.
"""

import numpy as np

from bert_jax.data.dataset import Survey
from bert_jax.data.store import Split
from bert_jax.errors import BadInput
from bert_jax.tasks import masked_rows
from bert_jax.tasks.packing import pack
from bert_jax.tasks.pair_rows import Rules, count_special_tokens, sample

PARTS = 64  # ranges of documents in a sample, spread evenly over the store
SENTENCES = 1 << 13  # sentences in each range, about
LEAST_REAL = 0.5  # of real_token_share without a warning
FEW = 100  # pairs; fewer are not judged
MOST_RANDOM = 0.7  # in the original BERT, a little more than half of the pairs are random
LABEL_1 = {"nsp": "a random second sentence", "sop": "swapped sentences"}  # by pair task


def survey(config, split: Split, phase, rules: Rules) -> Survey:
    """Surveys rows of epoch 0. Raises BadInput if all pairs have the same label."""
    pairs = sample(split, rules, PARTS, SENTENCES)
    real = pairs.a_length + pairs.b_length + count_special_tokens(rules.pair_task)
    packed = pack(real, rules.length, phase.keys.max_packed)
    share = float(real.sum() / len(packed) / rules.length)
    wanted = masked_rows.number_wanted(config.task.mask_rate, real)
    wanted = np.where(packed < 0, 0, wanted[packed]).sum(axis=1)
    ratio = float((pairs.label != 0).mean())  # of label 1
    text = f"{share:.0%} full"
    if phase.keys.max_packed > 1:
        text += f", {len(real) / len(packed):.1f} pairs a row"
    if meaning := LABEL_1.get(rules.pair_task):
        text += f", {ratio:.0%} of pairs have {meaning} (label 1)"
    warnings = [*warn_of_padding(phase, share), *masked_rows.warnings(phase, wanted)]
    return Survey(
        share, text, [*warnings, *warn_of_labels(phase, rules.pair_task, len(real), ratio)]
    )


def warn_of_padding(phase, share: float) -> list[str]:
    """Returns a warning if rows are mostly padding. share: of real tokens."""
    if share >= LEAST_REAL:
        return []
    key = f"phases.{phase.name}"
    remedy = f"reduce {key}.length or raise {key}.max_packed"
    return [f"rows are {share:.0%} full, the rest is padding: {remedy}"]


def warn_of_labels(phase, pair_task: str, pairs: int, ratio: float) -> list[str]:
    """Returns a warning if label 1 is much more frequent than label 0. Raises BadInput if there is only one label.

    The share of label 1 shows whether pairs can be learnt from; in a few pairs it is not significant.
    """
    if pair_task == "none" or pairs < FEW or 0.0 < ratio <= MOST_RANDOM:
        return []
    text = (
        f"{ratio:.0%} of {pairs} pairs have {LABEL_1[pair_task]} (label 1), expected a little over half: documents"
        f" have too few sentences for phases.{phase.name}.length={phase.length}; check corpus.format and"
        " corpus.sentences, or set objective.pair_task=none"
    )
    if ratio in (0.0, 1.0):
        raise BadInput(f"config.objective.pair_task={pair_task!r}: {text}")
    return [text]
