"""Metrics of whole splits that are no means over rows, by scikit-learn, SciPy and seqeval. N examples, C labels."""

import math
from collections.abc import Callable
from functools import partial
from itertools import chain

from bert_jax.config_checks import require
from bert_jax.errors import BadInput

# {task.kind: metrics of `of_texts`}
FITTING = {
    "classes": "accuracy f1 macro_f1 micro_f1 matthews",
    "labels": "accuracy macro_f1 micro_f1",
    "number": "pearson spearman",
}


ENTITIES = "f1", "precision", "recall", "accuracy", "macro_f1"  # metrics of `of_entities`


def of_texts() -> dict[str, Callable]:
    """Returns {name: function (targets, predictions)}: of arrays [N], or [N, C] of 0 and 1 if several labels may apply.

    Raises BadInput without the extra `finetune`.
    """
    try:
        from scipy import stats
        from sklearn import metrics
    except ModuleNotFoundError as error:
        raise not_installed(error) from None

    def of_two(test: Callable) -> Callable:
        return lambda *arrays: test(*arrays).statistic if len(arrays[0]) > 1 else math.nan

    def f1(average: str) -> Callable:
        return partial(metrics.f1_score, average=average, zero_division=0)

    return dict(
        accuracy=metrics.accuracy_score,
        f1=f1("binary"),
        macro_f1=f1("macro"),
        micro_f1=f1("micro"),
        matthews=metrics.matthews_corrcoef,
        pearson=of_two(stats.pearsonr),
        spearman=of_two(stats.spearmanr),
    )


def of_entities() -> dict[str, Callable]:
    """Returns {name: function (targets, predictions)} of [[label of a word, as entity_labels.spellings has it]].

    accuracy and macro_f1 are those of words. As in the script conlleval, an entity is right if its kind and all its
    words are; one that begins with I- counts. Raises BadInput without the extra `finetune`.
    """
    macro_f1 = of_texts()["macro_f1"]
    try:
        from seqeval import metrics
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    found = {n: partial(getattr(metrics, f"{n}_score"), zero_division=0) for n in ENTITIES[:3]}
    found["accuracy"] = metrics.accuracy_score
    found["macro_f1"] = lambda *labels: macro_f1(*([*chain(*rows)] for rows in labels))
    return found


def not_installed(error: ModuleNotFoundError) -> BadInput:
    return BadInput(f"{error.name} is not installed; run pip install -e '.[finetune]'")


def check(config, metrics: Callable = of_texts) -> None:
    """Raises BadInput for a name in task.metrics that is unknown, or does not fit the kind of the labels.

    metrics: `of_texts` or `of_entities`.
    """
    names, chosen, keys = list(metrics()), config.task.metrics, config.task
    if metrics is of_texts:
        names = FITTING[keys.get("kind", "classes")].split()
        hint = "f1 needs two labels; see macro_f1"
        require("f1" not in chosen or len(keys.labels) in (0, 2), "task.metrics", config, hint)
    known = (chosen or metrics is of_entities) and set(chosen) <= set(names)
    require(known, "task.metrics", config, f"expected some of {', '.join(names)}")


def compute(names: tuple[str, ...], targets, predictions, metrics: Callable = of_texts) -> dict:
    """Returns {name: score}. metrics: `of_texts` or `of_entities`, which say what targets and predictions are."""
    known = metrics()
    return {name: float(known[name](targets, predictions)) for name in names}
