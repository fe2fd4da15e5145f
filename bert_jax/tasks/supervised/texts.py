"""Labelled texts: their targets, and datasets of rows that hold the texts of an example, cut to fit.

N examples, T texts of an example, B rows of a batch, S packed sequences of a row, L length.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.checks import check_keys, require
from bert_jax.data import batch
from bert_jax.data.dataset import A_SIZE, A_START, B_SIZE, B_START, EXAMPLE, Dataset, Survey
from bert_jax.data.store import Split
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised import examples, labels, predictions, reviews, scores
from bert_jax.tasks.supervised.examples import Encoded, Example
from bert_jax.tasks.text.documents import sequence_sizes
from bert_jax.tokenizers.special_tokens import Frame, frame_of


class TextRows(NamedTuple):
    """The parts of a dataset in which tasks with labelled texts differ."""

    rows: Callable  # (Split, L, Frame) -> int64[R, S, 5 or more], whose first columns are those of `pairs`
    # Arrays of a batch that only the task's objective reads: (B, L) -> {name: jax.ShapeDtypeStruct}, and
    # (Split, rows int64[B, S, 5 or more], L) -> {name: tensor[B, ...]}.
    shapes: Callable
    look_up: Callable
    score: Callable  # (split, outputs, rows) -> {metric: number}
    review: Callable | None = None  # see Dataset
    sequences: int = 1  # S
    paired: bool = False  # whether a sequence has two texts


def check(config, sequences: int = 1, least: int = 0, paired=False, hint="") -> None:
    """Checks the keys of all tasks with texts.

    Raises BadInput, also for a phase with rows of fewer than `least` places, by default those of so many sequences of
    two texts of a piece, and for a model without a second segment if rows are `paired`. hint: what `least` depends on.
    """
    least = least or sequences * (2 + frame_of(config).size(2))
    has_segments = not paired or config.model.get("type_vocabulary", 2) > 1
    reason = f"the second texts of config.task.name={config.task.name!r} are a segment of their own"
    require(has_segments, "model.type_vocabulary", config, reason)
    shares = ["task.heldout", "task.warmup"]
    check_keys(config, shares=shares, not_negative=["task.epochs"])
    for name, phase in config.phases.items():
        is_valid = phase.length >= least
        require(is_valid, f"phases.{name}.length", config, f"expected at least {least}{hint}")


def parse(texts: list[str], size: int) -> list[Example]:
    """Returns examples without labels, of `size` texts each. Raises BadInput if some texts are left over."""
    if len(texts) % size:
        raise BadInput(f"{texts[-1]!r}: {len(texts)} texts; expected {size} for each example")
    result = []
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        result.append(Example(part[0], part, None))
    return result


def encode(config, tokenizer, chosen: list[Example], names: list[str]) -> Encoded:
    """Converts examples to ids and targets. Raises BadInput for a label that is not in `names`."""
    dtype = labels.DTYPES[labels.kind_of(config)]
    targets = [labels.target(config, example, names) for example in chosen]
    ids = examples.encode_texts(tokenizer, [example.texts for example in chosen])
    return Encoded(ids, {"targets": np.array(targets, dtype)})


def make_labelled(config, store, rows, sequences: int, paired: bool) -> Dataset:
    """Returns the dataset of a store of examples with labels. rows, sequences, paired: see `TextRows`."""
    kind = labels.kind_of(config)

    def shapes(rows, length) -> dict:
        shape = (rows,)
        if kind == "labels":
            shape = (rows, len(config.task.labels))
        return {"targets": jax.ShapeDtypeStruct(shape, labels.DTYPES[kind])}

    def look_up(split, rows, length) -> dict:
        from bert_jax.data import assemble

        return {"targets": assemble.look_up(split.path / "targets.npy", example_numbers(rows))}

    def score(split, outputs, rows) -> dict:
        targets = store.splits[split].read("targets")[example_numbers(rows)]
        predicted = predictions.of_labels(kind, outputs["label_logits"])
        result = scores.compute(config.task.metrics, scores.functions(), targets, predicted)
        if kind == "number":
            result["loss_of_mean"] = float(targets.var())
        else:
            result |= scores.beside_majority(targets, predicted)
        return result

    def review(split, outputs, rows, count) -> dict:
        part = store.splits[split]
        tokenizer = store.tokenizer
        targets = part.read("targets")[example_numbers(rows)]
        logits = outputs["label_logits"].reshape(len(rows), -1)

        def text(row: int) -> str:
            return reviews.text_of(part, tokenizer, rows[row])

        if kind == "classes":
            return reviews.of_classes(config.task.labels, logits, targets, text, count)
        predicted = predictions.of_labels(kind, logits)
        errors = np.abs(predicted - targets).reshape(len(rows), -1).sum(axis=1)
        sides = (reviews.names_of(config.task.labels, side) for side in (predicted, targets))
        return reviews.of_texts(*sides, text, count, errors)

    parts = TextRows(rows, shapes, look_up, score, review, sequences, paired)
    return make(config, store, parts)


def example_numbers(rows):
    """Returns the number of the example of each row."""
    return rows[:, 0, EXAMPLE]


def locate_texts(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the texts of each example start in the tokens of a split, int64[N, T], and their sizes.

    All examples have the same number of texts.
    """
    ends = split.sentence_ends.reshape(len(split.document_ends), -1)
    sizes = np.diff(ends.ravel(), prepend=0).reshape(ends.shape)
    return ends - sizes, sizes


def pairs(split: Split, length: int, frame: Frame) -> np.ndarray:
    """Returns int64[N, S, 5] as assemble.gather reads it: the first text with each of the others, or alone.

    The columns are the start and size of the first text, those of the second one or zeros, and the number of the
    example. Each sequence has 1 / S of the length. Of texts that are too long, tokens at the end of the longer one are
    cut, as in arXiv:1810.04805: with room for 10 tokens, 9 and 3 become 7 and 3, 9 and 8 become 5 and 5.
    """
    starts, sizes = locate_texts(split)
    sequences = starts.shape[1] - 1
    if not sequences:
        return single_texts(split, length - frame.size())
    room = length // sequences - frame.size(2)
    a_size = sizes[:, :1]
    # B gets what A leaves, but at least half of the room; then A gets what B leaves.
    most = np.maximum(room - a_size, room // 2)
    b_size = np.minimum(sizes[:, 1:], most)
    a_size = np.minimum(a_size, room - b_size)
    return as_rows(starts[:, :1], a_size, starts[:, 1:], b_size)


def as_rows(*columns) -> np.ndarray:
    """Returns int64[N, S, 5]: columns that broadcast to [N, S], and the number of the example."""
    numbers = np.arange(len(columns[0]))[:, None]
    return np.stack(np.broadcast_arrays(*columns, numbers), axis=2)


def both_orders(split: Split, length: int, frame: Frame) -> np.ndarray:
    """Returns int64[N, 2, 5] with the columns of `pairs`: the two texts of each example, and the same in the other
    order; each sequence has half of the length."""
    rows = pairs(split, length // 2, frame)
    return np.concatenate([rows, rows[..., [2, 3, 0, 1, 4]]], axis=1)


def single_texts(split: Split, room: int | np.ndarray) -> np.ndarray:
    """Returns int64[N, T, 5], each text alone, cut to fit, of which assemble.gather reads [:, t : t + 1]. Columns are
    those of `pairs`, without a second text. room: tokens of a text at most, or int64[T] of each."""
    starts, sizes = locate_texts(split)
    return as_rows(starts, np.minimum(sizes, room), 0, 0)


def cut_windows(sizes: np.ndarray, rooms, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int64[R] the number of the text of each window, and int64[R] the piece of the text that it begins with.

    sizes: int64[N], pieces of each text.
    rooms: pieces of a window of each text, at most.
    steps: int64[N], pieces from a window to the next one of each text.
    """
    counts = 1 + np.maximum(0, -(-(sizes - rooms) // steps))
    numbers = np.repeat(np.arange(len(counts)), counts)
    first_windows = np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, (np.arange(len(numbers)) - first_windows) * steps[numbers]


def count_cut(split: Split, rows) -> int:
    """Returns the number of texts of a split of which no row has the end. rows: int64[R, S, 5 or more], see `pairs`."""
    ends = rows[..., [A_START, B_START]] + rows[..., [A_SIZE, B_SIZE]]
    return int((~np.isin(split.sentence_ends, ends)).sum())


def make(config, store, parts: TextRows) -> Dataset:
    """Returns the dataset of a store of examples.

    A batch has, besides the arrays of the batch contract, label_weights float32[B] and those of `parts`.

    store: a Store or None.
    """
    splits = examples.split_names(config)
    frame = frame_of(config)

    def shapes(phase, rows: int) -> dict:
        structs = batch.shapes(rows, phase.length, parts.sequences)
        structs |= batch.structs({"label_weights": (rows,)})
        return structs | parts.shapes(rows, phase.length)

    def rows(phase, split, epoch):
        return parts.rows(store.splits[split], phase.length, frame)

    def make_batch(phase, split, rows, keys) -> dict:
        from bert_jax.data import assemble

        part = store.splits[split]
        tokens = assemble.map_file(part.path / "tokens.npy")
        special = store.manifest["special"]
        around = frame.ids(special), special["pad"]
        columns = rows[..., : EXAMPLE + 1]
        arrays = assemble.gather(tokens, columns, phase.length, *around, parts.paired)
        arrays["label_weights"] = assemble.as_weights(rows[:, 0, A_SIZE] > 0)
        arrays |= parts.look_up(part, rows, phase.length)
        return {name: arrays[name] for name in shapes(phase, 1) if name in arrays}

    def sizes(rows):
        special_tokens = frame.size(1 + parts.paired)
        return sequence_sizes(rows, special_tokens).sum(axis=-1)

    def survey(phase) -> Survey:
        part = store.splits[splits[0]]
        sample = rows(phase, splits[0], 0)
        share = float(sizes(sample).mean() / phase.length)
        cut = count_cut(part, sample)
        text = f"{share:.0%} full, {cut:,} of {len(part.sentence_ends):,} texts are cut to fit"
        return Survey(share, text, [])

    return Dataset(
        shapes=shapes,
        splits=splits,
        rows=rows,
        make=make_batch,
        survey=survey,
        score=parts.score,
        review=parts.review,
        sequences=lambda phase: parts.sequences,
        sizes=sizes,
        group=example_numbers,
    )


def wrap(tokens: np.ndarray, row: np.ndarray, frame: Frame) -> list[tuple]:
    """Returns (ids, segments) of each sequence of a row.

    tokens: all of the split. row: int64[S, 4 or more], see `pairs`. frame: as ids.
    """
    sequences = []
    for pair in row[:, :EXAMPLE].reshape(-1, 2, 2).tolist():
        texts = [tokens[start : start + size].tolist() for start, size in pair if size]
        sequences.append(frame.wrap(*texts))
    return sequences
