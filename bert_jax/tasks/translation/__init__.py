"""Translation: pairs of texts, of which the target is predicted from the source (arXiv:1706.03762).

The examples are rows of tables or parallel files without labels, see data/sources/tables.py. Both texts have the ids of
one vocabulary, which is trained on both columns if none is given. Pairs with an empty text are left out. Pairs that are
too long, or of too different lengths, are evaluated, but not trained on. The store's manifest and the report count
both.

Sources and targets have the frames of the model's file: a target begins with [CLS], and both end with [SEP], as in
MarianMTModel. A row to train on has several pairs, of which pair 1, 2, ... is sequence 1, 2, ... on both sides. An
evaluated row has one pair, and batches of such rows are cut to their longest; what exceeds the places of a row is cut
at the end, and `survey` warns of it. A batch has, besides the arrays of the batch contract,

    target_tokens         int32[B, L]
    target_positions      int32[B, L]    restart at 0 in every target
    target_sequence_ids   int32[B, L]    0 padding, 1.. the pair

segments are 0, and cls_positions say where the sources begin.

N pairs, B rows, S pairs of a row at most, L places of a row for sources, and as many for targets.
"""

import math
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from bert_jax.checks import check_keys, require
from bert_jax.config import longest_row
from bert_jax.data import batch
from bert_jax.data.dataset import A_SIZE, EXAMPLE, Dataset, Survey, draw_key
from bert_jax.data.sources import tables
from bert_jax.data.sources.text import has_visible
from bert_jax.data.store import Split, Store
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised import examples, parallel_texts, texts
from bert_jax.tasks.supervised.examples import Encoded, Example
from bert_jax.tasks.supervised.scores import check_names
from bert_jax.tasks.text.documents import Rows
from bert_jax.tasks.translation import packing, scores
from bert_jax.tokenizers.special_tokens import Frame, model_frame, target_frame

DEFAULTS = {
    **parallel_texts.DEFAULTS,
    "max_pieces": 100,  # pieces of either text of a pair that is trained on, at most
    # times that the longer text of a pair that is trained on has the pieces of the shorter one, at most; 0: any
    "max_ratio": 4.0,
    # pieces that a translation may have more than its source, up to model.max_length; 0: the largest excess of the
    # targets to train on and half as much again, at least 50 (arXiv:1706.03762), or without such targets any number. It
    # may be changed at any time
    "extra_pieces": 0,
    # scores of translations, see scores.py: bleu, chrf; the first one decides which run is the best. (): none
    "metrics": ("bleu",),
    "tokenize": "13a",  # how sacrebleu tokenizes for bleu: 13a, intl, char, zh, ja-mecab, ko-mecab, none, ...
    "lowercase": False,  # whether scores ignore case
}
FILLED = ("extra_pieces",)  # numbers that `fill` sets
TARGET = "tokens", "positions", "sequence_ids"
MIN_EXTRA_PIECES = 50  # of a derived task.extra_pieces
SAMPLE = 4096  # rows that are surveyed, about


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    keys = config.task
    texts.check(config)
    require(len(keys.text) == 2, "task.text", config, "expected two columns: source, target")
    not_negative = "task.max_ratio", "task.extra_pieces"
    check_keys(config, at_least_one=["task.max_pieces"], not_negative=not_negative)
    least = keys.max_pieces + special_tokens(config).max()
    for name, phase in config.phases.items():
        hint = f"expected at least {least}, since task.max_pieces={keys.max_pieces}"
        require(phase.length >= least, f"phases.{name}.length", config, hint)
    check_names(config, scores.NAMES, may_be_empty=True)


def parse(config, lines: list[str]) -> list[Example]:
    """Returns an example of each source, with an empty target."""
    return [Example(repr(line[:40]), [line, ""], None) for line in lines]


def load_sources(config, path: Path) -> list[Example]:
    """Reads a file to translate: the column of the sources of a table, or the lines of another file."""
    rows = tables.read_texts(path, config.task.text[0])
    return [Example(location, [text, ""], None) for location, text in rows]


def fill(config, store: Store) -> dict[str, int]:
    """Returns task.extra_pieces of the pairs to train on."""
    _, sizes = texts.locate_texts(store.splits["train"])
    return {"extra_pieces": max(MIN_EXTRA_PIECES, int(np.diff(sizes).max() * 3 // 2))}


def encode(config, tokenizer, chosen: list[Example], names: list[str]) -> Encoded:
    """Converts examples to ids; keeps their texts, to score translations. names: []."""
    pairs = [example.texts for example in chosen]
    return Encoded(examples.encode_texts(tokenizer, pairs), {"texts": pairs})


def clean(config, encoded: Encoded) -> tuple[Encoded, dict[str, int]]:
    """Returns the pairs to train on, without their texts, and the numbers of those left out, by reason.

    Raises BadInput if none is left.
    """
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


def frames(config) -> tuple[Frame, Frame]:
    """Returns the frames of a source and of a target."""
    model = config.model.name
    return model_frame(model), target_frame(model)


def special_tokens(config) -> np.ndarray:
    """Returns int64[2], the numbers of special tokens of a source and of a target."""
    return np.array([frame.size() for frame in frames(config)])


def fill_places(rows, special: np.ndarray) -> np.ndarray:
    """Returns int64[..., S, 2], the places that source and target of each pair fill; 0 for an absent pair.

    special: see `special_tokens`.
    """
    pieces = rows[..., A_SIZE]
    return np.where(pieces > 0, pieces + special, 0)


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store of pairs; see tasks/base.py."""
    splits = examples.split_names(config)
    special = special_tokens(config)

    def most_pairs(length: int) -> int:
        # As many as fit of the shortest pairs; 2 or more mark rows as packed.
        return max(2, length // int(special.max() + 1))

    def sequences(phase) -> int:
        return most_pairs(phase.length)

    def sizes(rows) -> np.ndarray:
        return fill_places(rows, special).sum(axis=-2).max(axis=-1)

    def shapes(phase, rows: int) -> dict:
        target = {f"target_{name}": (rows, phase.length) for name in TARGET}
        return batch.shapes(rows, phase.length, sequences(phase)) | batch.structs(target)

    @lru_cache(maxsize=1)
    def locate(split: str, length: int) -> np.ndarray:
        return texts.single_texts(store.splits[split], length - special)

    @lru_cache(maxsize=2)  # the survey and the pipeline read the same epochs
    def pack(length: int, number: int, epoch: int) -> np.ndarray:
        sizes = locate(splits[0], length)[..., A_SIZE] + special
        key = draw_key(config.seed, "packed_order", 0, number, epoch)
        return packing.pack(sizes, np.array([length, length, most_pairs(length)]), key)

    def rows(phase, split: str, epoch: int) -> Rows | np.ndarray:
        if split != splits[0]:
            return texts.single_texts(store.splits[split], phase.length - special)[:, None]
        packed = pack(phase.length, phase.text, epoch)
        return Rows(len(packed), partial(read, locate(split, phase.length), packed))

    def make_batch(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        ids = store.manifest["special"]
        rows = assemble.pad_sequences(rows, sequences(phase))
        sides = []
        for side, frame in enumerate(frames(config)):
            around = frame.ids(ids), ids["pad"]
            sides.append(assemble.gather(tokens, rows[:, :, side], phase.length, *around, False))
        arrays, target = sides
        arrays |= {f"target_{name}": target[name] for name in TARGET}
        return {name: arrays[name] for name in shapes(phase, 1) if name in arrays}

    def score(split: str, outputs, rows) -> dict:
        results = decode(config, store, split, outputs, rows)
        references = [target for _, target in read_texts(store, split, rows)]
        return scores.compute(config, config.task.metrics, results, [references])

    def survey_rows(phase) -> Survey:
        return survey(store, phase, splits, rows(phase, splits[0], 0), special)

    return Dataset(
        shapes=shapes,
        splits=splits,
        rows=rows,
        make=make_batch,
        survey=survey_rows,
        score=score if config.task.metrics else None,
        review=partial(review, config, store) if config.task.metrics else None,
        sequences=sequences,
        sizes=sizes,
        cuts_training=False,
    )


def read(pairs: np.ndarray, packed: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows with these numbers, int64[..., S, 2, 5]: source and target of each pair as assemble.gather reads
    them, see texts.single_texts; zeros for an absent pair.

    pairs: int64[N, 2, 5].
    packed: int32[R, S], see packing.pack.
    """
    chosen = packed[numbers]
    return np.where(chosen[..., None, None] < 0, 0, pairs[chosen])


def survey(store: Store, phase, splits, rows: Rows, special: np.ndarray) -> Survey:
    """Surveys a sample of the rows to train on, and warns of evaluated pairs that are cut."""
    filled = fill_places(rows[np.arange(0, len(rows), 1 + len(rows) // SAMPLE)], special)
    source, target = filled.sum(axis=1).mean(axis=0) / phase.length
    number = (filled[..., 0] > 0).sum(axis=1).mean()
    text = f"sources {source:.0%} full, targets {target:.0%}, {number:.1f} pairs a row"
    warnings = []
    for split in splits[1:]:
        _, pieces = texts.locate_texts(store.splits[split])
        number = (pieces > phase.length - special).any(axis=1).sum()
        if number:
            hint = f"{number:,} of {len(pieces):,} pairs are cut to the places of a row"
            warnings.append(f"phases.{phase.name}.length={phase.length}: {split}: {hint}")
    return Survey(float((source + target) / 2), text, warnings)


def read_texts(store, split: str, rows) -> list[list[str]]:
    """Returns [source, target] of each row, an empty target if it is not known."""
    pairs = store.splits[split].read("texts")
    return [pairs[number] for number in rows[:, 0, 0, EXAMPLE]]


def decode(config, store, split: str, outputs, rows) -> list[dict]:
    """Returns {prediction, at_limit, hypotheses: [{text, score}]} of each row, from the best hypothesis on. Without a
    beam, the score is `log_probability`.

    at_limit: whether the translation ended at its limit, see task.extra_pieces.
    outputs: those of objectives/translation.py. The translation of an empty source is empty, without hypotheses.
    """
    tokenizer = store.tokenizer
    name = "score" if config.objective.beams > 1 else "log_probability"
    results = []
    pairs = read_texts(store, split, rows)
    arrays = [outputs[key].tolist() for key in ("is_cut", "translations", "lengths", "scores")]
    for (source, _), is_cut, *hypotheses in zip(pairs, *arrays, strict=True):
        decoded = []
        for ids, length, score in zip(*hypotheses, strict=True):
            # The scores of a diverged model are not finite.
            if math.isfinite(score) and has_visible(source):
                text = tokenizer.decode(ids[:length]).strip()
                decoded.append({"text": text, name: score})
        best = decoded[0]["text"] if decoded else ""
        at_limit = is_cut and bool(decoded)
        results.append({"prediction": best, "at_limit": at_limit, "hypotheses": decoded})
    return results


def review(config, store, split: str, outputs, rows, count: int) -> dict:
    """Returns the first translations, and BLEU by the length of the source, see Dataset.review."""
    results = decode(config, store, split, outputs, rows)
    pairs = read_texts(store, split, rows)
    samples = []
    for result, (source, target) in zip(results[:count], pairs, strict=False):
        samples.append([source, {"guess": result["prediction"], "target": target}])
    return {"samples": samples, "tables": scores.by_length(config, results, pairs)}


def check_scores(config) -> None:
    """Raises BadInput if the scores in task.metrics cannot be computed."""
    if config.task.metrics:
        scores.make(config)


def widen(config, inputs: list[Example], split: Split, phase):
    """Returns the phase with rows that hold all texts of a split, those of `inputs`.

    Raises BadInput for a text that is longer than the model's positions.
    """
    _, pieces = texts.locate_texts(split)
    sizes = (pieces + special_tokens(config)).max(axis=1)
    longest = int(sizes.max())
    most = longest_row(config)
    if longest > most:
        location = inputs[sizes.argmax()].location
        raise BadInput(
            f"{location}: {longest} pieces with the end token, config.model.max_length={most}"
        )
    return phase._replace(length=longest)


EXAMPLES = examples.Examples(
    load=parallel_texts.load,
    load_inputs=load_sources,
    parse=parse,
    encode=encode,
    clean=clean,
    widen=widen,
    decode=decode,
    free=(*FILLED, "tokenize", "lowercase"),
)
