"""Sentences labelled by whether they have `threshold` tokens; evaluated on two splits, one without long ones.

`packed` sentences share a row: S of the arrays.
"""

import numpy as np

from bert_jax.config_checks import check_keys, require
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset, Survey, draw_key

DEFAULTS = {
    "threshold": 8,  # the smallest number of tokens of a long sentence
    "packed": 1,  # sentences in a row
    "labels": (),  # names of the labels; (): filled from the data
}
PHASE_DEFAULTS = {}
SPLITS = "train", "heldout", "short"


def check(config):
    check_keys(config, at_least_one=("task.threshold", "task.packed"))
    for name, phase in config.phases.items():
        fits = phase.length >= 3 * config.task.packed
        require(fits, f"phases.{name}.length", config, "expected at least 3 for each sentence")


def fill(config, store):
    """Returns the keys that the data decides."""
    sizes = np.diff(store.splits["train"].sentence_ends, prepend=0)
    names = np.array(["short", "long"])
    return {"labels": tuple(names[np.unique(sizes >= config.task.threshold).astype(int)].tolist())}


def make(config, store=None):
    packed = config.task.packed

    def source(split):
        return store.splits["train" if split == "train" else "heldout"]

    def shapes(phase, rows):
        own = {"labels label_weights": (rows, packed), "token_weights": (rows, phase.length)}
        return batch.shapes(rows, phase.length, packed) | batch.structs(own)

    def rows(phase, split, epoch):
        """Returns int64[R, S, 5], see assemble.gather: a sentence, no B, its label. An epoch has 9 of 10 of them."""
        ends = source(split).sentence_ends
        sizes = np.diff(ends, prepend=0)
        label = sizes >= config.task.threshold
        none = np.zeros_like(sizes)
        kept = np.minimum(sizes, phase.length // packed - 2)
        made = np.stack([ends - sizes, kept, none, none, label], 1)
        if split == "short":
            made = made[~label]
        else:
            key = draw_key(config.seed, "order", SPLITS.index(split), phase.number, epoch)
            order = np.random.default_rng(key).permutation(len(made))
            made = made[order[: len(made) * 9 // 10]]
        absent = np.zeros((-len(made) % packed, 5), np.int64)
        return np.concatenate([made, absent]).reshape(-1, packed, 5)

    def make_batch(phase, split, rows, keys):
        from bert_jax.data import assemble

        tokens = assemble.map_file(source(split).path / "tokens.npy")
        special = store.manifest["special"]
        made = assemble.gather(tokens, rows, phase.length, special, paired=False)
        shared = "tokens", "segments", "positions", "sequence_ids", "cls_positions"
        return {name: made[name] for name in shared} | {
            "labels": made["pair_labels"],
            "label_weights": assemble.as_weights(rows[:, :, 1] > 0),
            "token_weights": assemble.as_weights(made["sequence_ids"] > 0),
        }

    def score(split, outputs, rows):
        """Returns F1 of the long sentences, which is no mean over rows."""
        said, true = outputs["label_logits"].argmax(-1), rows[..., 4]
        used = rows[..., 1] > 0
        hits, total = (said & true & used).sum(), (used * (said + true)).sum()
        return {"f1": float(2 * hits / max(1, total)), "scored": used.sum()}

    def survey(phase):
        sizes = np.diff(store.splits["train"].sentence_ends[:1000], prepend=0)
        share = float(np.minimum(packed * (sizes + 2), phase.length).mean() / phase.length)
        return Survey(share, f"{share:.0%} full", [])

    return Dataset(shapes, SPLITS, rows, make_batch, survey, score)
