"""The settings of a phase that, together with the store, decide its batches."""

from typing import NamedTuple

from bert_jax.tasks.sentence_pairs import Rules


class Spec(NamedTuple):
    """The settings of a phase that, together with the store, decide its batches."""

    seed: int
    phase: int  # index in config.phase_order
    length: int  # tokens per row, with [CLS] and [SEP]
    batch: int  # rows per step, over all hosts
    max_predictions: int  # masked positions per row, at most
    pair_task: str  # nsp, sop or none
    masking: str  # token or whole_word
    mask_rate: float
    mask_share: float
    random_share: float
    short_rate: float
    max_packed: int = 1  # pairs packed in a row, at most

    @property
    def rules(self) -> Rules:
        return Rules(self.seed, self.phase, self.length, self.pair_task, self.short_rate)


def spec(config, phase_name: str) -> Spec:
    """Returns the Spec of a phase. The config keys have the names of its fields."""
    keys = {**config.phases[phase_name], **config.objective, **config.task}
    return Spec(
        seed=config.seed,
        phase=tuple(config.phase_order).index(phase_name),
        **{key: value for key, value in keys.items() if key in Spec._fields},
    )
