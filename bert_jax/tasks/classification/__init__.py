"""Texts or pairs of texts with a label: one of several classes, any of several labels, or a number.

The examples are rows of tables (see data/sources/tables.py) with one or two columns of texts and one of labels.
A batch has, besides the arrays of the batch contract,

    targets         int32[B] the class, float32[B, C] 1 for each label that applies, or float32[B] the number
    label_weights   float32[B]
"""

from itertools import chain

from bert_jax.checks import check_keys, require
from bert_jax.data.dataset import Dataset
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised import examples, labels, parallel_texts, predictions, scores, texts
from bert_jax.tasks.supervised.examples import Example

DEFAULTS = {
    **examples.DEFAULTS,
    # columns of one or two texts, by name, or by number in files without a header
    "text": ("sentence",),
    "label": "label",  # column of the label
    "kind": "classes",  # classes: one of them. labels: any of them, separated by commas. number: a score
    # whether a row has the two texts in both orders, each in half of its length, for pairs without an order, such as
    # paraphrases. The label depends on the sum of the vectors of both
    "both_orders": False,
    # see supervised/scores.py; the first one decides which run is the best
    "metrics": ("accuracy",),
}
MANY = 20  # classes: more are refused if they have fewer than two rows on average
assume = labels.assume


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    check_keys(config, choices={"task.kind": tuple(labels.DTYPES)})
    require(len(config.task.text) in (1, 2), "task.text", config, "expected one or two columns")
    is_pair = len(config.task.text) == 2
    require(is_pair or not config.task.both_orders, "task.both_orders", config, "texts are single")
    scores.check(config)
    texts.check(config, sequences=1 + config.task.both_orders, paired=is_pair)


def load(config, path) -> list[Example]:
    """Reads the examples of a file, which may lack the column of the label."""
    keys = config.task
    columns = [*keys.text, keys.label]
    result = []
    for location, (*row, label) in tables.read(path, columns, optional=keys.label):
        if keys.kind != "labels" and not str(label).strip():  # a set may be empty
            label = None
        result.append(Example(location, row, label))
    return result


def names(config, labelled: list[Example]) -> list[str]:
    """Returns the sorted names of the labels; none for numbers."""
    kind = config.task.kind
    if kind == "number":
        return []
    chosen = [labels.names_of(example, kind) for example in labelled]
    result = sorted({*chain(*chosen)})
    if not result:
        raise BadInput(f"config.task.data={config.task.data}: no example has a label")
    hint = f"one value in all rows, {result[0]!r}; expected two or more classes"
    require(kind != "classes" or len(result) > 1, "task.label", config, hint)
    if kind == "classes" and len(result) > max(MANY, len(chosen) / 2):
        raise BadInput(
            f"config.task.label={config.task.label!r}: {len(result):,} values in {len(chosen):,} rows"
            " are no classes; name another column, set config.task.kind=number, or name all values in"
            " config.task.labels"
        )
    return result


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store of examples; see tasks/base.py."""
    rows = texts.both_orders if config.task.both_orders else texts.pairs
    sequences = 1 + config.task.both_orders
    is_pair = len(config.task.text) == 2
    return texts.make_labelled(config, store, rows, sequences, is_pair)


def decode(config, store, split, outputs, rows) -> list[dict]:
    """Returns {prediction, probabilities} of each row, see predictions.describe."""
    return predictions.describe(config.task.kind, outputs["label_logits"], config.task.labels)


EXAMPLES = examples.Examples(
    load=load,
    parse=parallel_texts.parse,
    names=names,
    target=labels.target,
    encode=texts.encode,
    decode=decode,
    free=("both_orders",),
)
