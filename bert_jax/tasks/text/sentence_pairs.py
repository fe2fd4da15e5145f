"""BERT's task: rows of sentence pairs, masked; several pairs are packed in a row if `max_packed` says so.

B rows, S pairs per row at most.
"""

from functools import partial

import numpy as np

from bert_jax.checks import check_keys, require
from bert_jax.data import mixture
from bert_jax.data.dataset import LABEL, Dataset, Survey
from bert_jax.data.store import SPLITS, Split, Store, number_of
from bert_jax.errors import BadInput
from bert_jax.tasks.text import documents, masked_rows, mlm_batch, packing, pair_rows
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = {
    **masked_rows.DEFAULTS,
    # nsp: next sentence or random; sop: sentences in order or swapped; none: one segment per row
    "pair_task": "nsp",
    # share of documents, drawn anew in each epoch, whose rows get a random, shorter target length
    "short_rate": 0.1,
}
NEEDS = masked_rows.NEEDS
PHASE_DEFAULTS = {
    **masked_rows.PHASE_DEFAULTS,
    "max_packed": 1,  # sentence pairs packed in a row, at most; 1: as in BERT
}
SAMPLE = 1 << 16  # sentences that are surveyed, about
MIN_REAL_SHARE = 0.5  # of real_token_share without a warning
LABEL_1 = {"nsp": "a random second sentence", "sop": "swapped sentences"}  # by pair task
FEW = 100  # pairs; fewer are not judged
MAX_RANDOM_RATIO = 0.75  # in the original BERT, a little more than half of the pairs are random


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    masked_rows.check(config, paired=True)
    check_keys(
        config,
        choices={"task.pair_task": ("nsp", "sop", "none")},
        shares=("task.short_rate",),
    )
    hint = "expected another for sentence_pairs, which makes rows of sentences"
    require(config.corpus.sentences != "none", "corpus.sentences", config, hint)
    pair_task = config.task.pair_task
    has_segments = pair_task == "none" or config.model.get("type_vocabulary", 2) >= 2
    hint = f"task.pair_task={pair_task} needs at least 2"
    require(has_segments, "model.type_vocabulary", config, hint)
    for name, phase in config.phases.items():
        most = phase.length // 5
        hint = f"expected 1 to {most} pairs in a row of {phase.length} tokens"
        require(1 <= phase.max_packed <= most, f"phases.{name}.max_packed", config, hint)


def make(config, store: Store | None = None, word_starts: np.ndarray | None = None) -> Dataset:
    """Returns the dataset of a store's sentence pairs; see tasks/base.py. word_starts: see masked_rows.mask."""

    def shapes(phase, rows: int) -> dict:
        keys = phase.keys
        return mlm_batch.shapes(rows, phase.length, keys.max_predictions, keys.max_packed)

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        part = store.splits[split]
        settings = rules(config, phase)
        sequences = phase.keys.max_packed
        indexes = [pair_rows.indexes(store, split, settings)]
        if sequences > 1 and not number_of(split):  # held-out rows have one pair each
            indexes.append(packing.indexes(indexes[0], part, settings, sequences))
        reader = partial(read, sequences)
        sizes = phase.length, settings.special, len(part.tokens)
        return masked_rows.open_rows(indexes, epoch, *sizes, reader)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        special = store.manifest["special"]
        frame = frame_of(config).ids(special)
        paired = is_paired(config)
        arrays = assemble.gather(tokens, rows, phase.length, frame, special["pad"], paired)
        return masked_rows.mask(config, phase, split, store, word_starts, keys, arrays)

    return Dataset(
        shapes=shapes,
        rows=rows,
        make=make_batch,
        survey=partial(survey, config, store),
        sequences=lambda phase: phase.keys.max_packed,
        **mixture.fields(config, store),
    )


def rules(config, phase) -> pair_rows.Rules:
    """Returns the settings that decide the rows of a phase."""
    task = config.task
    sizes = phase.length, frame_of(config).size(1 + is_paired(config))
    return pair_rows.Rules(config.seed, phase.text, *sizes, task.pair_task, task.short_rate)


def is_paired(config) -> bool:
    """Returns whether rows have a second text."""
    return config.task.pair_task != "none"


def read(sequences: int, numbers, pairs, packed=None) -> np.ndarray:
    """Returns the rows with these numbers, int64[..., S, 5], as pair_rows.make_rows returns them; zeros for an absent
    pair.

    sequences: S.
    numbers: int64[...].
    pairs, packed: the indexes of the epoch; without `packed`, each row has one pair.
    """
    if packed is None:
        places = np.full((*numbers.shape, sequences), packing.NONE, np.int64)
        places[..., 0] = numbers
    else:
        places = packed[numbers].astype(np.int64)
    is_used = places != packing.NONE
    rows = pairs[np.where(is_used, places, 0) % len(pairs)]
    return pair_rows.unpack(np.where(is_used[..., None], rows, 0))


def survey(config, store: Store, phase) -> Survey:
    """Surveys a sample of the rows of epoch 0, and warns, with a remedy, if they do not suit the objective.

    The cost does not grow with the size of the store. Raises BadInput if all pairs have the same label.
    """
    settings = rules(config, phase)
    sequences = phase.keys.max_packed
    key = f"phases.{phase.name}"
    pairs = sample(store.splits[SPLITS[0]], settings)
    sizes = documents.sequence_sizes(pairs, settings.special)
    packed = packing.pack(sizes, phase.length, sequences)
    sizes = np.where(packed < 0, 0, sizes[packed])  # of the pairs of each row
    share, text, warnings = masked_rows.survey(config, phase, sizes)
    if sequences > 1:
        text += f", {len(pairs) / len(packed):.1f} pairs a row"
    if share < MIN_REAL_SHARE:
        remedy = f"reduce {key}.length or raise {key}.max_packed"
        warnings.append(f"rows are {share:.0%} full, the rest is padding: {remedy}")
    if settings.pair_task != "none":
        length = f"{key}.length={phase.length}"
        labels = pairs[:, LABEL]
        shares, pair_warnings = judge_pairs(settings.pair_task, labels, length)
        text += f", {shares}"
        warnings += pair_warnings
    return Survey(share, text, warnings)


def sample(split: Split, rules: pair_rows.Rules) -> np.ndarray:
    """Returns rows of epoch 0, int64[R, 5], of documents that are evenly spread over the split."""
    count = len(split.document_ends)
    number = min(count, 1 + SAMPLE * count // len(split.sentence_ends))
    numbers = np.linspace(0, count - 1, number, dtype=np.int64)
    block = pair_rows.open_block(split, rules, 0, numbers)
    return pair_rows.make_rows(block, pair_rows.find_chunks(block))


def judge_pairs(pair_task: str, labels: np.ndarray, key: str) -> tuple[str, list[str]]:
    """Returns the share of pairs with label 1 for the log, and a warning, with a remedy, if nothing is learnt from it.

    labels: of a sample of pairs. key: that of the length of rows, and its value. Raises BadInput if all pairs have the
    same label.
    """
    ratio = float(labels.mean())
    text = f"{ratio:.0%} of pairs have {LABEL_1[pair_task]} (label 1)"
    if len(labels) < FEW or 0 < ratio <= MAX_RANDOM_RATIO:
        return text, []
    reason = f"expected a little over half: documents have too few sentences for {key}"
    remedy = (
        "set task.pair_task=none, or check corpus.format and corpus.sentences, for another store"
    )
    warning = f"{text}, {reason}; {remedy}"
    if ratio in (0, 1):
        raise BadInput(f"config.task.pair_task={pair_task!r}: {warning}")
    return text, [warning]
