"""Named entities and tags: labels of words, from files of columns in the CoNLL format (doi:10.3115/1119176.1195).

A line has a word and its label, in columns between tabs or else blanks; empty lines and lines that begin with
-DOCSTART- separate sentences. All lines may be indented. Left out are comments, which begin with # and have another
number of columns than words, and of CoNLL-U, whose words are in the second of ten columns, the lines for several words
or for none, such as 1-2 and 1.1. An example is a sentence, and its texts are its words; in the store it is one text.
The first piece of a word has the word's label (arXiv:1810.04805, section 5.3). A batch has, besides the arrays of the
batch contract,

    targets         int32[B, L]     the label of a piece
    label_weights   float32[B, L]   0 for a piece without a label

Words that do not fit into a row are predicted as O: scores are those of whole files, whatever the length of rows. The
examples of transformers leave these words out of the score.
"""

import io
import re
import textwrap
from itertools import chain, groupby
from pathlib import Path

import numpy as np

from bert_jax.config_checks import require
from bert_jax.data import batch
from bert_jax.data.dataset import A_SIZE, Dataset, Survey
from bert_jax.data.store import Split, Store
from bert_jax.errors import BadInput
from bert_jax.tasks.labelled import examples, scores, tables, texts
from bert_jax.tasks.labelled.examples import Encoded, Example
from bert_jax.tasks.token_classification import entity_labels, entity_scores

DEFAULTS = {
    **examples.DEFAULTS,
    # numbers of the columns of words and labels, from 0; from the last one: -1, -2, ...
    "columns": (0, -1),
    # f1, precision and recall of entities, accuracy and macro_f1 of words; the first one decides which run is the best.
    # (): the first four if the labels in `train` are of entities, else the other two; see entity_labels.py
    "metrics": (),
}
PHASE_DEFAULTS = {}
BLANKS = " \t"
CONLLU = 10  # its columns


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    columns = config.task.columns
    fits = len(columns) == 2 and all(type(column) is int for column in columns)
    require(fits, "task.columns", config, "expected two numbers, such as (0, -1)")
    texts.check(config, least=3)
    entity_scores.functions()  # raises BadInput if they are not installed
    scores.check_names(config, entity_scores.NAMES, may_be_empty=True)


def load(config, path) -> list[Example]:
    """Reads the sentences of a file. The label of a sentence is a list of Example, its words; None if its first word
    has none."""
    if not isinstance(path, Path):
        raise BadInput(f"config.task.data={config.task.data}: expected a directory of files")
    text = io.StringIO(tables.read_text(path), newline=None).read()
    lines = textwrap.dedent(text).split("\n")
    first = next((line for line in lines if line.strip(BLANKS) and line[0] not in "#-"), "")
    is_tabbed = "\t" in first.strip(BLANKS)
    rows = [
        (f"{path}:{number}", split_columns(line, is_tabbed)) for number, line in enumerate(lines, 1)
    ]
    size = len(split_columns(first, is_tabbed))
    rows = [(place, row) for place, row in rows if not is_comment(config, row, size)]
    groups = groupby(rows, lambda row: bool(row[1]))
    return [sentence(config, [*group]) for is_sentence, group in groups if is_sentence]


def split_columns(line: str, is_tabbed: bool) -> list[str]:
    """Returns the columns of a line, between tabs or else blanks; [] if it separates sentences."""
    text = line.strip(BLANKS)
    if not text or line.startswith("-DOCSTART-"):
        return []
    return line.rstrip(BLANKS).split("\t") if is_tabbed else re.split("[ \t]+", text)


def is_comment(config, row: list[str], size: int) -> bool:
    """Returns whether a row is no word: a comment, or of CoNLL-U for several words or none. size: columns of words."""
    if row and row[0].startswith("#"):
        return len(row) != size > 0
    is_conllu = len(row) == CONLLU and config.task.columns[0] == 1
    return is_conllu and bool(re.fullmatch(r"\d+[-.]\d+", row[0]))


def sentence(config, rows: list[tuple[str, list[str]]]) -> Example:
    """Returns the sentence of (place, columns) of its words, which have no labels if there is one column."""
    (column, label), words = config.task.columns, []
    size = len(rows[0][1])
    for place, row in rows:
        if len(row) != size:
            raise BadInput(f"{place}: {len(row)} columns, expected {size} as above")
        if not {column, label} <= {*range(-size, size)}:
            hint = f"too few for config.task.columns={config.task.columns}"
            raise BadInput(f"{place}: {size} columns, {hint}")
        words.append(Example(place, [row[column]], row[label] if size > 1 else None))
    forms = [word.texts[0] for word in words]
    return Example(words[0].place, forms, words if size > 1 else None)


def parse(config, found: list[str]) -> list[Example]:
    """Returns a sentence without labels for each text, whose words are separated by blanks."""
    return [Example(text, text.split() or [text], None) for text in found]


def names(config, found: list[Example]) -> list[str]:
    """Returns the names of the labels: O first, the others sorted."""
    names = {word.label for example in found for word in example.label} - {""}
    outside = entity_labels.outside(names)
    return sorted(names, key=lambda name: (name != outside, name))


def fill(config, store: Store) -> dict:
    """Returns the metrics that fit the labels."""
    return {"metrics": metrics_of(config.task.labels or store.manifest["labels"])}


def metrics_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those that are computed by default, the first of which decides which run is the best."""
    if entity_labels.are_tags(names):
        return entity_scores.OF_WORDS
    return (*entity_scores.OF_ENTITIES, "accuracy")


def target(config, example: Example, names: list[str]) -> list[int]:
    """Returns the numbers of the words' labels, 0 for unknown ones. Raises BadInput for one that is not in `names`."""
    if example.label is None:
        return [0] * len(example.texts)
    return [examples.number(word, word.label, names) for word in example.label]


def encode(config, tokenizer, found: list[Example], names: list[str]) -> Encoded:
    """Converts sentences to ids and targets: of all pieces, -1 for a piece without a label, 0 for an unknown one."""
    # Byte-level pieces differ after a blank, as words are within a text.
    spaced = [each._replace(texts=[f" {word}" for word in each.texts]) for each in found]
    words = examples.encode_texts(tokenizer, spaced)
    sizes = np.array([*map(len, chain(*words))])
    targets = np.full(sizes.sum(), -1, np.int32)
    numbers = [target(config, example, names) for example in found]
    targets[sizes.cumsum() - sizes] = [*chain(*numbers)]
    return Encoded([[[*chain(*pieces)]] for pieces in words], {"targets": targets})


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store of sentences; see tasks/base.py."""

    def score(split: str, outputs: dict, rows: np.ndarray) -> dict[str, float]:
        names, pieces = config.task.labels, targets(store, split, rows)
        spellings = entity_labels.spellings(names)
        truth = [[spellings[names[number]] for number in row[row >= 0]] for row in pieces]
        found = decode(config, store, split, outputs, rows)
        said = [[spellings.get(name, name) for name in each["prediction"]] for each in found]
        metrics = config.task.metrics or metrics_of(names)  # a model of another program has none
        return scores.compute(metrics, entity_scores.functions(), truth, said)

    def shapes(rows: int, length: int) -> dict:
        return batch.structs({"targets label_weights": (rows, length)})

    dataset = texts.dataset(config, store, shapes, find, score)

    def survey(phase) -> Survey:
        found, names = dataset.survey(phase), config.task.labels
        scheme = " ".join(entity_labels.spellings(names).values())
        if entity_labels.are_tags(names):
            scheme = "tags, no entities"
        return found._replace(text=f"{found.text}; labels are read as {scheme}")

    return dataset._replace(survey=survey)


def find(split: Split, rows, length: int) -> dict:
    """Returns the targets of a batch and their weights: 0 where targets.npy has -1, and at special tokens."""
    from bert_jax.data import assemble

    array, none = assemble.map_file(split.path / "targets.npy"), {"cls": -1, "sep": -1, "pad": -1}
    found = assemble.gather(array, rows, length, none, paired=False)["tokens"]
    used = found >= 0
    return {"targets": assemble.as_ids(used) * found, "label_weights": assemble.as_weights(used)}


def targets(store: Store, split: str, rows: np.ndarray) -> list[np.ndarray]:
    """Returns the targets of all pieces of the sentence of each row."""
    part = store.splits[split]
    found = np.split(texts.targets_of(part), part.sentence_ends[:-1])
    return [found[number] for number in rows[:, 0, texts.EXAMPLE]]


def decode(config, store: Store, split: str, outputs: dict, rows: np.ndarray) -> list[dict]:
    """Returns {prediction} of each row: the name of the label of each word."""
    pieces, logits = targets(store, split, rows), outputs["label_logits"]
    return predict_words(logits, rows[:, 0, A_SIZE], pieces, config.task.labels)


def predict_words(logits: np.ndarray, sizes: np.ndarray, targets: list, names: tuple) -> list[dict]:
    """Returns {prediction} of each sentence: the name of the label of each word, O if the word is not in the row.

    logits: float32[N, L, C]. sizes: int[N], the pieces in the row, which are behind [CLS]. targets: for each sentence,
    those of all its pieces, int[pieces]: -1 but for the first piece of a word.
    """
    firsts = [np.flatnonzero(pieces >= 0) for pieces in targets]
    found = zip(logits.argmax(-1), sizes, firsts, strict=True)
    outside = entity_labels.outside(names)
    return [
        {"prediction": [names[row[1 + n]] if n < size else outside for n in places]}
        for row, size, places in found
    ]
