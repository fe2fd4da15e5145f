"""Questions about a text whose answers are spans of it, in the format of SQuAD 1.1 and 2.0.

A row is a window of a text, see windows.py. A batch has, besides the arrays of the batch contract,

    start_positions, end_positions    int32[B] first and last token of the answer; 0, [CLS], if it is not in the window
    label_weights                     float32[B]

A split has questions.json: [id, text, [answer]] of each question; answers are texts, all that are correct.
"""

from itertools import chain

import numpy as np

from bert_jax.checks import check_keys
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset
from bert_jax.tasks.question_answering import answer_scores, answers, squad, windows
from bert_jax.tasks.supervised import examples, reviews, scores, texts
from bert_jax.tasks.supervised.examples import Encoded, Example
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = {
    **examples.DEFAULTS,
    "stride": 128,  # pieces from a window of a text to the next one
    "question_length": 64,  # pieces of a question at most
    "answer_length": 30,  # pieces of an answer at most
    "no_answer": False,  # whether questions may have no answer, as in SQuAD 2.0
    # no answer is predicted if its score exceeds that of the best span by more; see best_threshold in metrics.jsonl
    "null_threshold": 0.0,
    "metrics": ("f1", "exact"),  # in tables; the first one decides which run is the best
}


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    check_keys(config, at_least_one=("task.stride", "task.question_length", "task.answer_length"))
    names = answer_scores.NAMES
    if not config.task.no_answer:
        names = names[:2]
    scores.check_names(config, names)
    size = config.task.question_length
    hint = f" with config.task.question_length={size}; set a smaller one"
    least = size + frame_of(config).size(2) + 1
    texts.check(config, least=least, paired=True, hint=hint)


def target(config, example: Example, names) -> list | None:
    """Returns the answers."""
    return example.label


def parse(config, lines: list[str]) -> list[Example]:
    """Returns examples without answers, each of a question and a text."""
    return texts.parse(lines, 2)


def names(config, labelled: list[Example]) -> list[str]:
    """Returns no names: answers are no labels."""
    return []


def encode(config, tokenizer, examples: list[Example], names: list[str]) -> Encoded:
    """Converts examples to ids, and the first answers to pieces."""
    pieces = windows.encode(tokenizer, chain(*(example.texts for example in examples)))
    ids = []
    offsets = []
    spans = []
    questions = []
    for example in examples:
        ids.append([pieces[text][0] for text in example.texts])
        offsets += [pieces[text][1] for text in example.texts]
        context = example.texts[1]
        correct = example.label or []
        span = (-1, -1)
        if correct:
            start = correct[0]["answer_start"]
            span = windows.find_span(pieces[context][1], start, correct[0]["text"])
        spans.append(span)
        questions.append([example.location, context, [answer["text"] for answer in correct]])
    arrays = {
        "offsets": np.concatenate(offsets),
        "spans": np.array(spans, np.int32),
        "questions": questions,
    }
    return Encoded(ids, arrays)


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store of questions; see tasks/base.py."""

    def rows(split, length, frame):
        task = config.task
        return windows.rows(split, length, frame, task.question_length, task.stride)

    def shapes(rows, length) -> dict:
        return batch.structs({"start_positions end_positions": (rows,)})

    def look_up(split, rows, length) -> dict:
        from bert_jax.data.assemble import as_ids

        return {
            "start_positions": as_ids(rows[:, 0, windows.FIRST]),
            "end_positions": as_ids(rows[:, 0, windows.LAST]),
        }

    def score(split, outputs, rows) -> dict:
        correct = [answers for *_, answers in read_questions(store, split, rows)]
        results = decode(config, store, split, outputs, rows)
        metrics = answer_scores.score(correct, [result["prediction"] for result in results])
        if config.task.no_answer:
            metrics |= answer_scores.best_scores(correct, results)
        return metrics

    def review(split, outputs, rows, count) -> dict:
        results = decode(config, store, split, outputs, rows)
        guesses = [result["prediction"] for result in results]
        targets = []
        for guess, (*_, correct) in zip(guesses, read_questions(store, split, rows), strict=True):
            correct = correct or [""]
            targets.append(guess if guess in correct else correct[0])
        part = store.splits[split]
        _, firsts = np.unique(texts.example_numbers(rows), return_index=True)

        def text(row: int) -> str:
            return reviews.text_of(part, store.tokenizer, rows[firsts[row]])

        return reviews.of_texts(guesses, targets, text, count)

    parts = texts.TextRows(rows, shapes, look_up, score, review, paired=True)
    return texts.make(config, store, parts)


def read_questions(store, split: str, rows) -> list[list]:
    """Returns [id, text, answers] of each question that has windows in `rows`."""
    questions = store.splits[split].read("questions")
    return [questions[number] for number in np.unique(texts.example_numbers(rows))]


def decode(config, store, split, outputs, rows) -> list[dict]:
    """Returns the `id` of each question, and its answer as answers.predict returns it."""
    keys = config.task
    threshold = None
    if keys.no_answer:
        threshold = keys.null_threshold
    questions = read_questions(store, split, rows)
    logits = outputs["label_logits"]
    frame = frame_of(config)
    groups = windows.group_by_question(store.splits[split], logits, rows[:, 0], frame)
    results = []
    for (name, context, _), group in zip(questions, groups, strict=True):
        answer = answers.predict(group, context, keys.answer_length, threshold)
        results.append({"id": name} | answer)
    return results


EXAMPLES = examples.Examples(
    load=squad.load,
    parse=parse,
    names=names,
    target=target,
    encode=encode,
    decode=decode,
    free=("stride", "question_length", "answer_length", "no_answer", "null_threshold"),
)
