"""Scores of translations by sacrebleu (arXiv:1804.08771), whose signatures say how they were computed."""

import itertools

import numpy as np

from bert_jax.checks import require
from bert_jax.errors import BadInput, one_line
from bert_jax.tokenizers import words

NAMES = ("bleu", "chrf")
LENGTHS = 10, 20, 30, 40, 60  # words at which groups of sources begin


def make(config) -> dict:
    """Returns {name: metric of sacrebleu} of NAMES.

    Raises BadInput without the library, or if it does not know the tokenization, or lacks what that needs.
    """
    try:
        from sacrebleu import metrics
    except ModuleNotFoundError as error:
        hint = "run pip install -c constraints.txt -e '.[translate]', or set config.task.metrics=()"
        raise BadInput(f"{error.name} is not installed; {hint}") from None
    keys = config.task
    known = sorted(metrics.BLEU.TOKENIZERS)
    hint = f"expected one of {', '.join(known)}"
    require(keys.tokenize in known, "task.tokenize", config, hint)
    try:
        bleu = metrics.BLEU(keys.lowercase, force=True, tokenize=keys.tokenize)
    except (ImportError, OSError, RuntimeError) as error:
        raise BadInput(f"config.task.tokenize={keys.tokenize}: {one_line(error)}") from None
    return {"bleu": bleu, "chrf": metrics.CHRF(lowercase=keys.lowercase)}


def compute(config, names, results: list[dict], references: list[list[str]]) -> dict:
    """Returns {name: score} of these of NAMES, 0 to 100, {name_signature: text}, and `at_limit`, the number of
    translations that ended at their limit.

    results: those of the task's `decode`.
    references: one or several translations of all sources.
    """
    hypotheses = [result["prediction"] for result in results]
    values = {}
    metrics = make(config)
    for name in names:
        values[name] = metrics[name].corpus_score(hypotheses, references).score
        values[f"{name}_signature"] = str(metrics[name].get_signature())
    return values | {"at_limit": sum(result["at_limit"] for result in results)}


def by_length(config, results: list[dict], pairs: list[list[str]]) -> list[dict]:
    """Returns {first, last, number, bleu} of the pairs whose sources have `first` to `last` words, in the order of the
    lengths; `last` is None for the longest.

    results: those of the task's `decode`. pairs: source and target of each.
    """
    sizes = np.array([words.count(source) for source, _ in pairs])
    groups = []
    for first, stop in itertools.pairwise((0, *LENGTHS, None)):
        is_inside = (sizes >= first) & (sizes < (stop or np.inf))
        chosen = np.flatnonzero(is_inside).tolist()
        if chosen:
            part = [results[number] for number in chosen]
            references = [pairs[number][1] for number in chosen]
            values = compute(config, ["bleu"], part, [references])
            last = stop and stop - 1
            group = {"first": first, "last": last, "number": len(chosen), "bleu": values["bleu"]}
            groups.append(group)
    return groups
