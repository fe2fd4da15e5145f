"""Metrics of whole splits that are no means over rows, by scikit-learn and SciPy. N examples, C labels."""

from collections.abc import Callable

import numpy as np

from bert_jax.config_checks import require
from bert_jax.errors import BadInput

NAMES = ("accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman")


def check(config) -> None:
    """Raises BadInput for an unknown name in task.metrics."""
    known = config.task.metrics and set(config.task.metrics) <= set(NAMES)
    require(known, "task.metrics", config, f"expected some of {', '.join(NAMES)}")
    functions()


def functions() -> dict[str, Callable]:
    """Returns {name: function (targets, predictions)}. Raises BadInput without the extra `finetune`."""
    try:
        from scipy import stats
        from sklearn import metrics
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is not installed; run pip install -e '.[finetune]'") from None

    def f1(average: str) -> Callable:
        return lambda *arrays: metrics.f1_score(*arrays, average=average, zero_division=0)

    return dict(
        accuracy=metrics.accuracy_score,
        f1=f1("binary"),
        macro_f1=f1("macro"),
        micro_f1=f1("micro"),
        matthews=metrics.matthews_corrcoef,
        pearson=lambda *arrays: stats.pearsonr(*arrays).statistic,
        spearman=lambda *arrays: stats.spearmanr(*arrays).statistic,
    )


def compute(names: tuple[str, ...], targets: np.ndarray, predictions: np.ndarray) -> dict:
    """Returns {name: score}. targets, predictions: [N], or [N, C] of 0 and 1 if several labels may apply."""
    known = functions()
    return {name: float(known[name](targets, predictions)) for name in names}
