"""Metrics of the labels of words, by seqeval and scikit-learn."""

from collections.abc import Callable
from functools import partial
from itertools import chain

from bert_jax.tasks.supervised import scores

NAMES = ("f1", "precision", "recall", "accuracy", "macro_f1")


def functions() -> dict[str, Callable]:
    """Returns {name: function (targets, predictions)} of [[label of a word, as entity_labels.spellings has it]].

    accuracy and macro_f1 are those of words. As in the script conlleval, an entity is right if its kind and all its
    words are; one that begins with I- counts.
    """
    macro_f1 = scores.functions()["macro_f1"]
    from seqeval import metrics

    def macro_f1_of_words(*labels):
        return macro_f1(*([*chain(*rows)] for rows in labels))

    return dict(
        f1=partial(metrics.f1_score, zero_division=0),
        precision=partial(metrics.precision_score, zero_division=0),
        recall=partial(metrics.recall_score, zero_division=0),
        accuracy=metrics.accuracy_score,
        macro_f1=macro_f1_of_words,
    )
