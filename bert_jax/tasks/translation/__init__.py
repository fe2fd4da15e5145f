"""Translation: pairs of texts, of which the target is predicted from the source (arXiv:1706.03762).

The examples are rows of tables or parallel files without labels, see labelled/tables.py. Both texts have the ids of one
vocabulary, which is trained on both columns if none is given. Pairs that are too long, or of too different lengths, are
not trained on; the store's manifest and the report count them. Splits that are evaluated have all of their pairs.

A source is its pieces and [SEP], the end token; a target is [CLS], the begin token, its pieces, and [SEP], as in
MarianMTModel. A row to train on has several pairs, of which pair 1, 2, ... is sequence 1, 2, ... on both sides. An
evaluated row has one pair; what exceeds its places is cut at the end, and `survey` warns of it. A batch has, besides
the arrays of the batch contract,

    target_tokens         int32[B, T]
    target_positions      int32[B, T]    restart at 0 in every target
    target_sequence_ids   int32[B, T]    0 padding, 1.. the pair

segments are 0, and cls_positions say where the sources begin.

N pairs, B rows, S pairs of a row at most, L places of a row for sources, T for targets.
"""

from functools import partial

import numpy as np

from bert_jax.config_checks import check_keys, require
from bert_jax.data import batch
from bert_jax.data.dataset import A_SIZE, Dataset, Survey, draw_key
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.tasks.labelled import examples, parallel_texts, texts
from bert_jax.tasks.labelled.examples import Encoded
from bert_jax.tasks.text.documents import Rows
from bert_jax.tasks.translation import packing

DEFAULTS = {
    **parallel_texts.DEFAULTS,
    "max_pieces": 100,  # pieces of either text of a pair that is trained on, at most
    # times that the longer text of a pair that is trained on has the pieces of the shorter one, at most; 0: any
    "max_ratio": 4.0,
}
PHASE_DEFAULTS = {
    "target_length": 0  # places of a row for targets; 0: as many as `length`, those for sources
}
SPECIAL = np.array([1, 2])  # special tokens of a source and of a target
TARGET = "tokens", "positions", "sequence_ids"
SAMPLE = 4096  # rows that are surveyed, about
load = parallel_texts.load
parse = parallel_texts.parse
encode = parallel_texts.encode


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    keys = config.task
    require(len(keys.text) == 2, "task.text", config, "expected two columns: source, target")
    check_keys(config, at_least_one=["task.max_pieces"])
    is_valid = keys.max_ratio == 0 or keys.max_ratio >= 1
    require(is_valid, "task.max_ratio", config, "expected 0, or at least 1")
    texts.check(config)
    for name, phase in config.phases.items():
        target = "target_length" if phase.target_length else "length"
        for key, least in zip(("length", target), keys.max_pieces + SPECIAL, strict=True):
            hint = f"expected at least {least}, since task.max_pieces={keys.max_pieces}"
            require(phase[key] >= least, f"phases.{name}.{key}", config, hint)


def clean(config, encoded: Encoded) -> tuple[Encoded, dict[str, int]]:
    """Returns the pairs to train on, and the numbers of those left out, by reason. Raises BadInput if none is left."""
    most = config.task.max_pieces
    ratio = config.task.max_ratio
    sizes = np.array([[*map(len, pair)] for pair in encoded.texts])
    longest = sizes.max(axis=1)
    is_long = longest > most
    is_uneven = ~is_long & (ratio > 0) & (longest > ratio * sizes.min(axis=1))
    pairs = [encoded.texts[number] for number in np.flatnonzero(~is_long & ~is_uneven)]
    if not pairs:
        hint = f"with task.max_ratio={ratio}, no pair is left to train on"
        raise BadInput(f"config.task.max_pieces={most}: {hint}")
    reasons = {
        f"a text has more than {most} pieces": int(is_long.sum()),
        f"a text has more than {ratio} times the pieces of the other": int(is_uneven.sum()),
    }
    return Encoded(pairs, {}), reasons


def places_of(phase) -> np.ndarray:
    """Returns int64[2], the places of a row for sources and for targets: L and T."""
    return np.array([phase.length, phase.keys.target_length or phase.length])


def sequences(phase) -> int:
    """Returns S: as many as fit of the shortest pairs; 2 or more mark rows as packed."""
    return max(2, int((places_of(phase) // (SPECIAL + 1)).min()))


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store of pairs; see tasks/base.py."""
    splits = examples.split_names(config)

    def shapes(phase, rows: int) -> dict:
        length, target_length = places_of(phase).tolist()
        target = {f"target_{name}": (rows, target_length) for name in TARGET}
        return batch.shapes(rows, length, sequences(phase)) | batch.structs(target)

    def rows(phase, split: str, epoch: int) -> Rows:
        # `single_texts` leaves room for two special tokens.
        pairs = texts.single_texts(store.splits[split], places_of(phase) - SPECIAL + 2)
        if split == splits[0]:
            key = draw_key(config.seed, "packed_order", 0, phase.number, epoch)
            limits = np.append(places_of(phase), sequences(phase))
            packed = packing.pack(pairs[..., A_SIZE] + SPECIAL, limits, key)
        else:
            packed = np.full((len(pairs), sequences(phase)), -1)
            packed[:, 0] = np.arange(len(pairs))
        return Rows(len(packed), partial(read, pairs, packed))

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        length, target_length = places_of(phase).tolist()
        gather = partial(assemble.gather, special=store.manifest["special"], paired=False)
        arrays = gather(tokens, rows[:, :, 0], length, begins=False)
        target = gather(tokens, rows[:, :, 1], target_length)
        arrays |= {f"target_{name}": target[name] for name in TARGET}
        return {name: arrays[name] for name in shapes(phase, 1) if name in arrays}

    def survey_rows(phase) -> Survey:
        return survey(store, phase, splits, rows(phase, splits[0], 0))

    return Dataset(shapes, splits, rows, make_batch, survey_rows, sequences=sequences)


def read(pairs: np.ndarray, packed: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows with these numbers, int64[..., S, 2, 5]: source and target of each pair as assemble.gather reads
    them, see texts.single_texts; zeros for an absent pair.

    pairs: int64[N, 2, 5].
    packed: int32[R, S], see packing.pack.
    """
    chosen = packed[numbers]
    return np.where(chosen[..., None, None] < 0, 0, pairs[chosen])


def survey(store: Store, phase, splits: tuple[str, ...], rows: Rows) -> Survey:
    """Surveys a sample of the rows to train on, and warns of evaluated pairs that are cut."""
    places = places_of(phase)
    sizes = rows[np.arange(0, len(rows), 1 + len(rows) // SAMPLE)][..., A_SIZE]
    filled = np.where(sizes > 0, sizes + SPECIAL, 0).sum(axis=1).mean(axis=0)
    source, target = filled / places
    number = (sizes[..., 0] > 0).sum(axis=1).mean()
    text = f"sources {source:.0%} full, targets {target:.0%}, {number:.1f} pairs a row"
    warnings = []
    for split in splits[1:]:
        _, sizes = texts.locate_texts(store.splits[split])
        number = (sizes > places - SPECIAL).any(axis=1).sum()
        if number:
            hint = f"{number:,} of {len(sizes):,} pairs are cut to the places of a row"
            warnings.append(f"phases.{phase.name}.length={phase.length}: {split}: {hint}")
    return Survey(float(filled.sum() / places.sum()), text, warnings)
