"""Named entities: labels of words, from files of columns in the CoNLL format (doi:10.3115/1119176.1195).

A line has a word and its label, in columns between tabs or else blanks; empty lines and lines that begin with
-DOCSTART- separate sentences. An example is a sentence, and its texts are its words; in the store it is one text. The
first piece of a word has the word's label (arXiv:1810.04805, section 5.3). A batch has, besides the arrays of the batch
contract,

    targets         int32[B, L]     the label of a piece
    label_weights   float32[B, L]   0 for a piece without a label

Words that do not fit into a row are predicted as O: scores are those of whole files, whatever the length of rows. The
examples of transformers leave these words out of the score.
"""

from itertools import chain, groupby
from pathlib import Path

import numpy as np

from bert_jax.config_checks import require
from bert_jax.data import batch, examples
from bert_jax.data.dataset import Dataset
from bert_jax.data.examples import Encoded, Example
from bert_jax.data.store import Split, Store
from bert_jax.errors import BadInput
from bert_jax.objectives import predictions, scores
from bert_jax.tasks import texts

DEFAULTS = {
    **examples.DEFAULTS,
    # numbers of the columns of words and labels, from 0; from the last one: -1, -2, ...
    "columns": (0, -1),
    # f1, precision and recall of entities, accuracy of words; the first one decides which run is the best
    "metrics": ("f1", "precision", "recall", "accuracy"),
}
PHASE_DEFAULTS = {}


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    columns = config.task.columns
    fits = len(columns) == 2 and all(type(column) is int for column in columns)
    require(fits, "task.columns", config, "expected two numbers, such as (0, -1)")
    texts.check(config, scores.of_entities, least=3)


def load(config, path) -> list[Example]:
    """Reads the sentences of a file. The label of a sentence is a list of Example, its words; None if its first word
    has none."""
    if not isinstance(path, Path):
        raise BadInput(f"config.task.data={config.task.data}: expected a directory of files")
    lines = enumerate(path.read_bytes().split(b"\n"), 1)
    words = (parse_line(config, f"{path}:{number}", line) for number, line in lines)
    return [sentence([*group]) for is_sentence, group in groupby(words, bool) if is_sentence]


def parse_line(config, place: str, line: bytes) -> Example | None:
    """Returns the word in a line, with label None if it is the only column; None if the line separates sentences."""
    word, label = config.task.columns
    try:
        text = line.decode().strip("\r\ufeff")  # joined files may have byte order marks anywhere
        row = text.split("\t") if "\t" in text else [*filter(None, text.split(" "))]
        if not text.strip() or text.startswith("-DOCSTART-"):
            return None
        return Example(place, [row[word]], row[label] if len(row) > 1 else None)
    except (IndexError, UnicodeDecodeError):
        hint = f"not UTF-8, or without a column of config.task.columns={config.task.columns}"
        raise BadInput(f"{place}: {hint}") from None


def sentence(words: list[Example]) -> Example:
    first, forms = words[0], [word.texts[0] for word in words]
    return Example(first.place, forms, None if first.label is None else words)


def parse(config, found: list[str]) -> list[Example]:
    """Returns a sentence without labels for each text, whose words are separated by blanks."""
    return [Example(text, text.split() or [text], None) for text in found]


def names(config, found: list[Example]) -> list[str]:
    """Returns the names of the labels: O first, the others sorted."""
    known = {word.label for example in found for word in example.label} - {None, ""}
    return sorted(known, key=lambda name: (name != predictions.OUTSIDE, name))


def encode(config, tokenizer, found: list[Example], names: list[str]) -> Encoded:
    """Converts sentences to ids and targets: of all pieces, -1 for a piece without a label, 0 for an unknown one."""
    # Byte-level pieces differ after a blank, as words are within a text.
    spaced = [each._replace(texts=[f" {word}" for word in each.texts]) for each in found]
    words = examples.encode_texts(tokenizer, spaced)
    sizes = np.array([*map(len, chain(*words))])
    unknown = Example("", [], names[0])
    labelled = chain(*(each.label or [unknown] * len(each.texts) for each in found))
    targets = np.full(sizes.sum(), -1, np.int32)
    numbers = [examples.number(word, word.label, names) for word in labelled]
    targets[sizes.cumsum() - sizes] = numbers
    return Encoded([[[*chain(*pieces)]] for pieces in words], {"targets": targets})


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of a store of sentences; see tasks/base.py."""

    def score(split: str, outputs: dict, rows: np.ndarray) -> dict[str, float]:
        names, pieces = config.task.labels, targets(store, split, rows)
        truth = [[names[number] for number in row[row >= 0]] for row in pieces]
        said = [each["prediction"] for each in decode(config, store, split, outputs, rows)]
        return scores.compute(config.task.metrics, truth, said, scores.of_entities)

    def shapes(rows: int, length: int) -> dict:
        return batch.structs({"targets label_weights": (rows, length)})

    return texts.dataset(config, store, shapes, find, score)


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
    return [found[number] for number in rows[:, 0, 4]]


def decode(config, store: Store, split: str, outputs: dict, rows: np.ndarray) -> list[dict]:
    """Returns {prediction} of each row: the name of the label of each word."""
    pieces, logits = targets(store, split, rows), outputs["label_logits"]
    return predictions.of_words(logits, rows[:, 0, 1], pieces, config.task.labels)
