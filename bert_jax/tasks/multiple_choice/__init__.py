"""Multiple choice: which of several endings fits a text, in the layout of SWAG (arXiv:1808.05326).

The examples are rows of tables (see data/sources/tables.py): the context and, for each of the S choices, the start and
the ending as one text. A row has S packed sequences [CLS] context [SEP] start ending [SEP], each with at most 1 / S of
the length; those of a causal model may end with [END]. A batch has, besides the arrays of the batch contract,

    targets         int32[B]     the number of the right ending, from 0
    label_weights   float32[B]
"""

from bert_jax.checks import require
from bert_jax.data.dataset import Dataset
from bert_jax.data.sources import tables
from bert_jax.tasks.supervised import examples, labels, predictions, scores, texts
from bert_jax.tasks.supervised.examples import Example

DEFAULTS = {
    **examples.DEFAULTS,
    # columns, by name, or by number in files without a header
    "context": ("sent1",),  # columns of the first text, joined by blanks
    "start": "sent2",  # column of what all endings begin with; '': none
    "endings": ("ending0", "ending1", "ending2", "ending3"),  # columns of the endings
    "label": "label",  # column of the number of the right ending, from 0
    # see supervised/scores.py; the first one decides which run is the best
    "metrics": ("accuracy",),
}


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    require(config.task.context, "task.context", config, "expected one or more columns")
    require(len(config.task.endings) > 1, "task.endings", config, "expected two or more columns")
    scores.check(config)
    texts.check(config, sequences=len(config.task.endings), paired=True)


def load(config, path) -> list[Example]:
    """Reads the examples of a file, which may lack the column of the label."""
    keys = config.task
    columns = [*keys.context, *filter(None, [keys.start]), *keys.endings, keys.label]
    first = len(keys.context)
    last = -len(keys.endings)
    result = []
    for location, (*row, label) in tables.read(path, columns, optional=keys.label):
        parts = []
        if row:
            choices = [" ".join([*row[first:last], ending]) for ending in row[last:]]
            parts = [" ".join(row[:first]), *choices]
        result.append(Example(location, parts, label or None))
    return result


def parse(config, lines: list[str]) -> list[Example]:
    """Returns examples without labels, each of a context and its endings."""
    return texts.parse(lines, 1 + len(config.task.endings))


def names(config, labelled: list[Example]) -> list[str]:
    """Returns the numbers of the endings."""
    return [*map(str, range(len(config.task.endings)))]


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store of examples; see tasks/base.py."""
    sequences = len(config.task.endings)
    return texts.make_labelled(config, store, texts.pairs, sequences, paired=True)


def decode(config, store, split, outputs, rows) -> list[dict]:
    """Returns {prediction, probabilities} of each row: the number of an ending, and the probability of each."""
    results = predictions.describe("classes", outputs["label_logits"], config.task.labels)
    return [result | {"prediction": int(result["prediction"])} for result in results]


EXAMPLES = examples.Examples(
    load=load,
    parse=parse,
    names=names,
    target=labels.target,
    encode=texts.encode,
    decode=decode,
)
