"""Labelled texts: their targets, and datasets of rows that hold the texts of an example, cut to fit.

N examples, T texts of an example, B rows of a batch, S packed sequences of a row, L length.
"""

import jax
import numpy as np

from bert_jax.config_checks import check_keys, require
from bert_jax.data import batch
from bert_jax.data.dataset import A_SIZE, Dataset, Survey
from bert_jax.data.store import Split, Store, open_array
from bert_jax.errors import BadInput
from bert_jax.tasks.labelled import examples, labels, predictions, scores
from bert_jax.tasks.labelled.examples import Encoded, Example
from bert_jax.tasks.text.documents import sequence_sizes

EXAMPLE = 4  # column of a row with the number of its example, in the place of the label of a pair


def check(config, least: int = 5, paired=False) -> None:
    """Checks the keys of all tasks with texts.

    Raises BadInput, also for a phase with rows of fewer than `least` places: for texts and their special tokens, and
    for a model without a second segment if rows are `paired`.
    """
    fits = not paired or config.model.get("type_vocabulary", 2) > 1
    hint = f"the second texts of config.task.name={config.task.name!r} are a segment of their own"
    require(fits, "model.type_vocabulary", config, hint)
    check_keys(config, shares=["task.heldout"])
    for name, phase in config.phases.items():
        fits = phase.length >= least
        require(fits, f"phases.{name}.length", config, f"expected at least {least}")


def parse(found: list[str], size: int) -> list[Example]:
    """Returns examples without labels, of `size` texts each. Raises BadInput if some texts are left over."""
    if len(found) % size:
        raise BadInput(f"{found[-1]!r}: {len(found)} texts; expected {size} for each example")
    parts = (found[start : start + size] for start in range(0, len(found), size))
    return [Example(part[0], part, None) for part in parts]


def target(config, example: Example, names: list[str]) -> int | float | np.ndarray:
    """Converts a label to a target; see labels.target."""
    return labels.target(example, names, labels.kind_of(config))


def encode(config, tokenizer, found: list[Example], names: list[str]) -> Encoded:
    """Converts examples to ids and targets. Raises BadInput for a label that is not in `names`."""
    dtype = labels.DTYPES[labels.kind_of(config)]
    targets = np.array([target(config, each, names) for each in found], dtype)
    return Encoded(examples.encode_texts(tokenizer, found), {"targets": targets})


def labelled(config, store: Store | None, paired: bool, sequences: int = 1) -> Dataset:
    """Returns the dataset of a store of examples with labels. paired, sequences: see `dataset`."""
    kind = labels.kind_of(config)
    several = (len(config.task.labels),) * (kind == "labels")

    def shapes(rows: int, length: int) -> dict:
        return {"targets": jax.ShapeDtypeStruct((rows, *several), labels.DTYPES[kind])}

    def find(split: Split, rows, length: int) -> dict:
        from bert_jax.data import assemble

        return {"targets": assemble.look_up(split.path / "targets.npy", rows[:, 0, EXAMPLE])}

    def score(split: str, outputs: dict, rows: np.ndarray) -> dict[str, float]:
        wanted = targets_of(store.splits[split])[rows[:, 0, EXAMPLE]]
        found = predictions.of_labels(kind, outputs["label_logits"])
        return scores.compute(config.task.metrics, scores.functions(), wanted, found)

    return dataset(config, store, shapes, find, score, paired=paired, sequences=sequences)


def pairs(split: Split, length: int) -> np.ndarray:
    """Returns int64[N, S, 5] as assemble.gather reads it: the first text with each of the others, or alone.

    They are the start and size of the first text, of the second one or zeros, and the number of the example. Each
    sequence has 1 / S of the length. Of texts that are too long, tokens at the end of the longer one are cut, as in
    arXiv:1810.04805. All examples have the same number of texts.
    """
    ends = split.sentence_ends.reshape(len(split.document_ends), -1)  # [N, T]
    sizes = np.diff(ends.ravel(), prepend=0).reshape(ends.shape)
    starts, others = ends - sizes, ends.shape[1] - 1
    if not others:
        starts, sizes = (np.pad(array, [(0, 0), (0, 1)]) for array in (starts, sizes))
    room = length // max(1, others) - (3 if others else 2)
    a, b, numbers = sizes[:, :1], sizes[:, 1:], np.arange(len(ends))[:, None]
    b = np.minimum(b, np.maximum(room - a, room // 2))
    a = np.minimum(a, room - b)
    return np.stack(np.broadcast_arrays(starts[:, :1], a, starts[:, 1:], b, numbers), axis=2)


def targets_of(split: Split) -> np.ndarray:
    """Returns the targets of a split, mapped."""
    return open_array(split.path / "targets.npy")


def dataset(config, store, shapes, find, score, rows=pairs, paired=False, sequences=1) -> Dataset:
    """Returns the dataset of a store of examples.

    A batch has, besides the arrays of the batch contract, label_weights float32[B] and what the objective reads:

    store: a Store or None.
    shapes: (B, L) -> {name: jax.ShapeDtypeStruct} of these.
    find: (Split, rows, L) -> {name: tensor[B, ...]}.
    score: (split, outputs, rows) -> {metric: number}.
    rows: (Split, L) -> int64[R, S, 5 or more], which begin as those of `pairs`.
    paired: whether a sequence has two texts.    sequences: S.
    """
    splits = examples.split_names(config)

    def all_shapes(phase, rows: int) -> dict:
        weights = batch.structs({"label_weights": (rows,)})
        return batch.shapes(rows, phase.length, sequences) | weights | shapes(rows, phase.length)

    def all_rows(phase, split: str, epoch: int) -> np.ndarray:
        return rows(store.splits[split], phase.length)

    def make(phase, split: str, rows, keys) -> dict:
        from bert_jax.data import assemble

        part, special = store.splits[split], store.manifest["special"]
        tokens = assemble.map_file(part.path / "tokens.npy")
        made = assemble.gather(tokens, rows[..., :5], phase.length, special, paired)
        made["label_weights"] = assemble.as_weights(rows[:, 0, A_SIZE] > 0)
        made |= find(part, rows, phase.length)
        return {name: made[name] for name in all_shapes(phase, 1) if name in made}

    def survey(phase) -> Survey:
        found = sequence_sizes(all_rows(phase, splits[0], 0))
        share = float(found.sum(axis=-1).mean() / phase.length)
        cut = float((found == phase.length // sequences).mean())
        text = f"{share:.0%} full, {cut:.1%} of the texts fill their places"
        return Survey(share, text, labels.warnings(config.task.labels))

    def group(rows: np.ndarray) -> np.ndarray:
        return rows[:, 0, EXAMPLE]

    return Dataset(all_shapes, splits, all_rows, make, survey, score, sizes, group)


def sizes(rows: np.ndarray) -> np.ndarray:
    """Returns the number of tokens of rows, int64[...]."""
    return sequence_sizes(rows).sum(axis=-1)
