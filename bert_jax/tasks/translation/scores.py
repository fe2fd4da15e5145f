"""Scores of translations by sacrebleu (arXiv:1804.08771), whose signatures say how they were computed."""

from bert_jax.checks import require
from bert_jax.errors import BadInput, one_line
from bert_jax.tokenizers import words

NAMES = ("bleu", "chrf")
WORDS = 10  # by which groups of sources differ


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


def by_length(config, results: list[dict], pairs: list[list[str]]) -> dict:
    """Returns {title: table} of BLEU by the words of the source, see Dataset.review.

    results: those of the task's `decode`. pairs: source and target of each.
    """
    groups = {}
    for result, (source, target) in zip(results, pairs, strict=True):
        groups.setdefault(words.count(source) // WORDS, []).append((result, target))
    rows = []
    for number, group in sorted(groups.items()):
        chosen, targets = zip(*group, strict=True)
        bleu = compute(config, ["bleu"], chosen, [targets])["bleu"]
        rows.append([f"{number * WORDS} to {(number + 1) * WORDS - 1}", len(group), round(bleu, 2)])
    return {"BLEU by length": [["words of the source", "pairs", "BLEU"], *rows]}
