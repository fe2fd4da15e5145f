"""Metrics of whole splits that are no means over rows, by scikit-learn and SciPy. N examples, C labels."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec

import numpy as np

from bert_jax.checks import require
from bert_jax.errors import BadInput

# {task.kind: those that fit it}
FITTING = {
    "classes": "accuracy f1 macro_f1 micro_f1 matthews",
    "labels": "accuracy macro_f1 micro_f1",
    "number": "pearson spearman",
}


def functions() -> dict[str, Callable]:
    """Returns {name: function (targets, predictions)}: of arrays [N], or [N, C] of 0 and 1 if several labels apply."""
    from scipy import stats
    from sklearn import metrics

    def correlation(test):
        def compute(*arrays):
            if len(arrays[0]) < 2:
                return math.nan
            return test(*arrays).statistic

        return compute

    def f1(average):
        return partial(metrics.f1_score, average=average, zero_division=0)

    return dict(
        accuracy=metrics.accuracy_score,
        f1=f1("binary"),
        macro_f1=f1("macro"),
        micro_f1=f1("micro"),
        matthews=metrics.matthews_corrcoef,
        pearson=correlation(stats.pearsonr),
        spearman=correlation(stats.spearmanr),
    )


def require_installed(name: str) -> None:
    """Raises BadInput if a library of the extra `finetune` is missing; does not import it, which takes a second."""
    if not find_spec(name):
        hint = "run pip install -c constraints.txt -e '.[finetune]'"
        raise BadInput(f"{name} is not installed; {hint}")


def check(config) -> None:
    """Raises BadInput for a name in task.metrics that is unknown, or does not fit the kind of the labels."""
    chosen = config.task.metrics
    hint = "f1 needs two labels; see macro_f1"
    is_valid = "f1" not in chosen or len(config.task.labels) in (0, 2)
    require(is_valid, "task.metrics", config, hint)
    require_installed("sklearn")
    check_names(config, FITTING[config.task.get("kind", "classes")].split())


def check_names(config, names: Iterable[str], may_be_empty: bool = False) -> None:
    """Raises BadInput if task.metrics has another name than these, or none."""
    chosen = set(config.task.metrics)
    is_valid = chosen <= set(names) and (may_be_empty or chosen)
    require(is_valid, "task.metrics", config, f"expected some of {', '.join(names)}")


def beside_majority(targets, predictions) -> dict[str, float]:
    """Returns `majority`, the share of the most frequent label or set of labels, the `accuracy`, and `over_majority`,
    the accuracy less this share. Arguments: [N, ...]."""
    _, counts = np.unique(targets, axis=0, return_counts=True)
    share = counts.max() / len(targets)
    accuracy = functions()["accuracy"](targets, predictions)
    return {"accuracy": accuracy, "majority": share, "over_majority": accuracy - share}


def compute(names: Iterable[str], functions: dict[str, Callable], targets, predictions) -> dict:
    """Returns {name: score} by functions (targets, predictions)."""
    return {name: float(functions[name](targets, predictions)) for name in names}
