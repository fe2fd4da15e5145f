"""Checks, before step 0, whether the rows of a store suit the objective: warns with numbers and a remedy."""

from bert_jax import config as configs
from bert_jax.data import batch_spec, store_sample
from bert_jax.errors import BadInput

LEAST_REAL = 0.5  # of real_token_share without a warning
FEW = 100  # pairs; fewer are not judged
MOST_RANDOM = 0.7  # in the original BERT, a little more than half of the pairs are random
LABEL_1 = {"nsp": "a random second sentence", "sop": "swapped sentences"}  # by pair task
CUT = 0.05  # share of the chosen positions that `max_predictions` may drop without a warning


def check_phases(config, store) -> list[str]:
    """Returns warnings about the rows of each phase, and a line with their statistics. Raises BadInput if a run cannot
    work. Reads a sample, so it takes seconds for a store of any size."""
    warnings, numbers = [], []
    for phase in configs.phases(config):
        rows = store_sample.survey_rows(store, batch_spec.spec(config, phase.name))
        warnings += check_rows(config, phase, rows)
        packed = f", {rows.pairs / rows.rows:.1f} pairs a row" if phase.max_packed > 1 else ""
        numbers.append(f"{phase.name} {rows.real_token_share:.0%} full{packed}")
        if meaning := LABEL_1.get(config.objective.pair_task):
            numbers[-1] += f", {rows.pair_ratio:.0%} of pairs have {meaning} (label 1)"
    return [*warnings, f"rows {'; '.join(numbers)}"]


def check_rows(config, phase, rows) -> list[str]:
    """Returns warnings about the rows of a phase. Raises BadInput if all pairs have the same label."""
    warnings, key = [], f"phases.{phase.name}"
    if rows.real_token_share < LEAST_REAL:
        warnings.append(
            f"rows are {rows.real_token_share:.0%} full, the rest is padding: reduce {key}.length or raise"
            f" {key}.max_packed"
        )
    if rows.given < (1 - CUT) * rows.wanted:
        warnings.append(
            f"{key}.max_predictions={phase.max_predictions} drops {1 - rows.given / rows.wanted:.0%} of the masked"
            " positions: raise it"
        )
    pairs = config.objective.pair_task
    # The share of label 1 shows whether pairs can be learnt from; in a few pairs it is not significant.
    if pairs != "none" and rows.pairs >= FEW and not 0.0 < rows.pair_ratio <= MOST_RANDOM:
        text = (
            f"{rows.pair_ratio:.0%} of {rows.pairs} pairs have {LABEL_1[pairs]} (label 1), expected a little over"
            f" half: documents have too few sentences for {key}.length={phase.length}; check corpus.format and"
            " corpus.sentences, or set objective.pair_task=none"
        )
        if rows.pair_ratio in (0.0, 1.0):
            raise BadInput(f"config.objective.pair_task={pairs!r}: {text}")
        warnings.append(text)
    return warnings
