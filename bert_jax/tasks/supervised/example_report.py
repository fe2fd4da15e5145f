"""The report of `prepare` on a store of examples."""

import numpy as np

from bert_jax.data.preparation import report
from bert_jax.data.store import Store, count_split
from bert_jax.registry import part_of
from bert_jax.tasks.supervised import examples


def build(config, store: Store) -> dict:
    """Returns the report as plain data: facts of the vocabulary are those of the split to train on, and lengths are in
    tokens."""
    tokenizer = store.tokenizer
    train = store.splits["train"]
    counts = {name: count_split(store.splits[name]) for name in examples.split_names(config)}
    sizes = np.diff(train.sentence_ends, prepend=0)
    unigrams = np.bincount(train.tokens, minlength=tokenizer.size)
    unknown = [number for name, number in tokenizer.special.items() if name == "unk"]
    return {
        "store": config.store,
        "splits": counts,
        "dropped": store.manifest.get("dropped", {}),
        "cleaned": store.manifest.get("cleaned", {}),
        "copies": store.manifest.get("copies", {}),
        "labels": count_labels(store),
        "keys": part_of(config, "task").fill(config, store),
        **report.describe_vocabulary(tokenizer, unigrams),
        "unknown_share": float(unigrams[unknown].sum() / unigrams.sum()),
        "mean_text": float(sizes.mean()),
        "longest_text": int(sizes.max()),
        "first_documents": [*report.first_documents(train, tokenizer, "texts")],
    }


def count_labels(store: Store) -> dict[str, int]:
    """Returns {label: its number in the split to train on}; {} without names of labels."""
    names = store.manifest["labels"]
    if not names:
        return {}
    targets = store.splits["train"].read("targets")
    numbers = targets.nonzero()[1] if targets.ndim > 1 else targets[targets >= 0]
    return dict(zip(names, np.bincount(numbers, minlength=len(names)).tolist(), strict=True))


def describe(values: dict) -> list[str]:
    """Returns the report as lines of text."""
    lines = [f"{values['store']}: prepared"]
    for name, counts in values["splits"].items():
        documents, texts, tokens = counts.values()
        lines.append(f"{name}: {documents:,} examples, {texts:,} texts, {tokens:,} tokens")
    for name, number in values["dropped"].items():
        lines.append(f"{name}: {number:,} rows left out, empty or with other columns")
    for name, number in values["copies"].items():
        lines.append(f"{name}: {number:,} examples are in train, too")
    labels = [f"{name} {number:,}" for name, number in values["labels"].items()]
    return [
        *lines,
        report.describe_pieces(values, "tokens"),
        f"texts: {values['mean_text']:,.1f} tokens on average, {values['longest_text']:,} at most",
        f"labels: {', '.join(labels[:20]) or 'none'}",
        *(f"config.task.{key}: {value} unless set" for key, value in values["keys"].items()),
        "",
        "the first examples, as the model will see them:",
        *values["first_documents"],
    ]
