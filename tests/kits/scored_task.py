"""The task of docs/extending.md with all that a task may have besides: names of labels that its data decides, weights
that are no rows' weights, a third split, and scores, which repeat the means of the loss in NumPy."""

from dataclasses import replace

import numpy as np
from my_code import task  # the page's, which test_external_task.py writes

from bert_jax.data.dataset import LABEL

DEFAULTS = task.DEFAULTS | {"labels": ()}
check = task.check


def fill(config, store):
    names = "first of a document", "later"
    return {"labels": names[: 1 + (len(store.splits["train"].sentence_ends) > 1)]}


def make(config, store=None):
    dataset = task.make(config, store)

    def source(split):
        return "train" if split == "train" else "heldout"

    def rows(phase, split, epoch):
        """Returns the rows of the page's task; those of `later` have no first sentence."""
        index = dataset.rows(phase, source(split), epoch)
        return index[index[:, LABEL] == 0] if split == "later" else index

    def make_batch(phase, split, rows, keys):
        from bert_jax.data import assemble

        arrays = dataset.make(phase, source(split), rows, keys)
        weight = assemble.as_weights(1 + 2 * rows[:, LABEL])
        return arrays | {"label_weights": arrays["label_weights"] * weight}

    def score(split, outputs, rows):
        """rows: those of the outputs, int64[R, 5]; none that only fills a batch."""
        logits = np.float64(outputs["label_logits"])
        labels = rows[:, LABEL]
        weights = 1 + 2 * labels
        nats = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(rows)), labels]
        return {
            "nats": np.average(nats, weights=weights),
            "accuracy": np.average(logits.argmax(-1) == labels, weights=weights),
            "scored": len(rows),
        }

    splits = "train", "heldout", "later"
    return replace(dataset, splits=splits, rows=rows, make=make_batch, score=score)
