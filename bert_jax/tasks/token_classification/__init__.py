"""Named entities and tags: labels of words.

The examples are sentences of files in the CoNLL format, see conll.py; the texts of an example are its words, and in the
store it is one text. The first piece of a word has the word's label (arXiv:1810.04805, section 5.3). A batch has,
besides the arrays of the batch contract,

    targets         int32[B, L]     the label of a piece
    label_weights   float32[B, L]   0 for a piece without a label

A sentence that is longer than a row has several, of which each shares half of its pieces with the next one; the logits
of both are added. The examples of transformers leave the words out that do not fit into one row.
"""

import dataclasses
from collections.abc import Iterator
from itertools import chain

import numpy as np

from bert_jax.checks import require
from bert_jax.data import batch
from bert_jax.data.dataset import A_SIZE, A_START, Dataset, Survey
from bert_jax.tasks.supervised import examples, labels, reviews, scores, texts
from bert_jax.tasks.supervised.examples import Encoded, Example
from bert_jax.tasks.token_classification import conll, entity_labels, entity_scores
from bert_jax.tokenizers.special_tokens import Frame, frame_of

DEFAULTS = {
    **examples.DEFAULTS,
    # numbers of the columns of words and labels, from 0; from the last one: -1, -2, ...
    "columns": (0, -1),
    # f1, precision and recall of entities, accuracy and macro_f1 of words; the first one decides which run is the best.
    # (): the first four if the labels in `train` are of entities, else the other two; see entity_labels.py
    "metrics": (),
}
NONE = -1  # the target of a piece without a label


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    columns = config.task.columns
    is_valid = [type(column) for column in columns] == [int, int]
    require(is_valid, "task.columns", config, "expected two numbers, such as (0, -1)")
    texts.check(config, least=1 + frame_of(config).size())
    scores.require_installed("seqeval")
    scores.check_names(config, entity_scores.NAMES, may_be_empty=True)


def parse(config, lines: list[str]) -> list[Example]:
    """Returns a sentence without labels for each text, whose words are separated by blanks."""
    return [Example(text, text.split() or [text], None) for text in lines]


def names(config, sentences: list[Example]) -> list[str]:
    """Returns the names of the labels: O first, the others sorted."""
    names = {word.label for sentence in sentences for word in sentence.label} - {""}
    hint = f"the labels of all words are {names}; expected two or more"
    require(len(names) > 1, "task.train", config, hint)
    outside = entity_labels.outside(names)
    return sorted(names, key=lambda name: (name != outside, name))


assume = labels.assume


def fill(config, store) -> dict:
    """Returns the metrics that fit the labels."""
    return {"metrics": metrics_of(config.task.labels or store.manifest["labels"])}


def metrics_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those that are computed by default, the first of which decides which run is the best."""
    if entity_labels.are_tags(names):
        return "accuracy", "macro_f1"
    return "f1", "precision", "recall", "accuracy"


def target(config, example: Example, names: list[str]) -> list[int]:
    """Returns the numbers of the words' labels, 0 for unknown ones. Raises BadInput for one that is not in `names`."""
    if example.label is None:
        return [0] * len(example.texts)
    return [examples.label_number(word, word.label, names) for word in example.label]


def encode(config, tokenizer, sentences: list[Example], names: list[str]) -> Encoded:
    """Converts sentences to ids and targets: of all pieces, -1 for a piece without a label, 0 for an unknown one."""
    # Byte-level pieces differ after a blank, as words are within a text.
    spaced = [[f" {word}" for word in sentence.texts] for sentence in sentences]
    words = examples.encode_texts(tokenizer, spaced)
    sizes = np.array([*map(len, chain(*words))])
    firsts = sizes.cumsum() - sizes
    targets = np.full(sizes.sum(), NONE, np.int32)
    targets[firsts] = [*chain(*(target(config, sentence, names) for sentence in sentences))]
    ids = [[[*chain(*pieces)]] for pieces in words]
    return Encoded(ids, {"targets": targets})


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store of sentences; see tasks/base.py."""

    def score(split, outputs, rows) -> dict:
        names = config.task.labels
        spellings = entity_labels.spellings(names)
        correct = []
        predicted = []
        for targets, classes in read(config, store, split, outputs, rows):
            correct.append([spellings[names[number]] for number in targets])
            predicted.append([spellings[names[number]] for number in classes])
        metrics = config.task.metrics or metrics_of(names)  # a model of another program has none
        result = scores.compute(metrics, entity_scores.functions(), correct, predicted)
        return result | scores.beside_majority(*map(np.concatenate, (correct, predicted)))

    def shapes(rows, length) -> dict:
        return batch.structs({"targets label_weights": (rows, length)})

    def look_up(split, rows, length) -> dict:
        from bert_jax.data import assemble

        array = assemble.map_file(split.path / "targets.npy")
        frame = Frame(*([NONE] * len(part) for part in frame_of(config)[:3]))
        targets = assemble.gather(array, rows, length, frame, NONE, paired=False)["tokens"]
        used = targets >= 0
        return {
            "targets": assemble.as_ids(used) * targets,
            "label_weights": assemble.as_weights(used),
        }

    def review(split, outputs, rows, count) -> dict:
        names = config.task.labels
        labels = [*zip(*read(config, store, split, outputs, rows), strict=True)]
        targets, guesses = ([name_all(names, row) for row in side] for side in labels)
        part = store.splits[split]
        sentences = np.split(part.tokens, part.sentence_ends[:-1])
        numbers = np.unique(texts.example_numbers(rows))

        def text(row: int) -> str:
            return store.tokenizer.decode(sentences[numbers[row]].tolist())

        result = reviews.of_texts(guesses, targets, text, count)
        result["tables"] |= reviews.confusions(names, *map(np.concatenate, labels))
        return result

    dataset = texts.make(config, store, texts.TextRows(windows, shapes, look_up, score, review))

    def survey(phase) -> Survey:
        names = config.task.labels
        if entity_labels.are_tags(names):
            scheme = "tags, no entities"
        else:
            scheme = " ".join(entity_labels.spellings(names).values())
        result = dataset.survey(phase)
        return result._replace(text=f"{result.text}; labels are read as {scheme}")

    return dataclasses.replace(dataset, survey=survey)


def name_all(names, numbers) -> str:
    """Returns the names of the labels of words, separated by blanks."""
    return " ".join(names[number] for number in numbers)


def windows(split, length: int, frame: Frame) -> np.ndarray:
    """Returns int64[R, 1, 5]: rows as texts.pairs returns them, several of a sentence that is longer."""
    sentences = texts.single_texts(split, len(split.tokens))[:, 0]
    room = length - frame.size()
    steps = np.full(len(sentences), (room + 1) // 2)
    numbers, offsets = texts.cut_windows(sentences[:, A_SIZE], room, steps)
    rows = sentences[numbers]
    rows[:, A_START] += offsets
    rows[:, A_SIZE] = np.minimum(room, rows[:, A_SIZE] - offsets)
    return rows[:, None]


def read(config, store, split, outputs, rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the labels of the words of each sentence that has rows, int32[W], and those that are predicted,
    int64[W]."""
    begin = len(frame_of(config).begin)
    part = store.splits[split]
    logits = np.zeros((len(part.tokens), len(config.task.labels)), np.float32)
    for (start, size, *_), row_logits in zip(rows[:, 0], outputs["label_logits"], strict=True):
        logits[start : start + size] += row_logits[begin : begin + size]
    ends = part.sentence_ends[:-1]
    classes = np.split(logits.argmax(-1), ends)
    targets = np.split(part.read("targets"), ends)
    for number in np.unique(texts.example_numbers(rows)):
        # A word's label is that of its first piece, which has a target.
        is_first = targets[number] >= 0
        yield targets[number][is_first], classes[number][is_first]


def decode(config, store, split, outputs, rows) -> list[dict]:
    """Returns {prediction} of each sentence that has rows: the name of the label of each word."""
    names = config.task.labels
    return [
        {"prediction": [names[number] for number in classes]}
        for _, classes in read(config, store, split, outputs, rows)
    ]


EXAMPLES = examples.Examples(
    load=conll.load,
    parse=parse,
    names=names,
    target=target,
    encode=encode,
    decode=decode,
)
