"""Questions of files in the format of SQuAD 1.1 and 2.0."""

import json
from collections import Counter

from bert_jax.data.sources import tables
from bert_jax.data.sources.text import replace_surrogates
from bert_jax.errors import BadInput, one_line
from bert_jax.tasks.supervised.examples import Example


def load(config, path) -> list[Example]:
    """Reads a file of SQuAD. A label is a list of {text, answer_start}; None if the file has no answers.

    Raises BadInput for a file of another format, for an answer that is not in its text where it should be, and for two
    questions with the same id.
    """
    try:
        content = json.loads(tables.read_text(path))
        questions = [
            read_question(path, question, paragraph["context"], article.get("title", ""))
            for article in replace_surrogates(content)["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not a file of SQuAD ({one_line(error)})") from None
    for name, count in Counter(question.location for question in questions).most_common(1):
        if count > 1:
            raise BadInput(f"{path}: {count} questions with the id {name!r}")
    return questions


def read_question(path, question: dict, context: str, title: str) -> Example:
    """Returns the example of a question; its location is its id."""
    "".join([question["question"], context])  # raises TypeError for a null
    label = [] if question.get("is_impossible") else question.get("answers")
    for answer in label or []:
        start = answer["answer_start"]
        text = answer["text"]
        if not text or start < 0 or not context.startswith(text, start):
            there = f"the text of {len(context)} characters has not {text!r} there"
            raise BadInput(f"{path}: question {question['id']}: answer_start={start}: {there}")
    return Example(str(question["id"]), [question["question"], context], label, title)
