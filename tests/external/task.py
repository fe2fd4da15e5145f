"""Sentences labelled by whether they have `threshold` tokens or more; evaluated on two splits, one without long ones."""

import numpy as np

from bert_jax.data import batch
from bert_jax.data.dataset import Dataset, Survey, draw_key
from bert_jax.errors import BadInput

# The smallest number of tokens of a long sentence.
DEFAULTS = {
    "threshold": 8,
    "labels": (),  # names of the labels; (): filled from the data
}
PHASE_DEFAULTS = {}
SPLITS = "train", "heldout", "short"


def check(config):
    if config.task.threshold < 1:
        raise BadInput(f"config.task.threshold={config.task.threshold}: expected at least 1")


def fill(config, store):
    """The keys that the data decides."""
    sizes = np.diff(store.splits["train"].sentence_ends, prepend=0)
    names = np.array(["short", "long"])
    return {"labels": tuple(names[np.unique(sizes >= config.task.threshold).astype(int)].tolist())}


def make(config, store=None):
    def shapes(phase, rows):
        own = {"label label_weights": (rows,), "token_weights": (rows, phase.length)}
        return batch.shapes(rows, phase.length) | batch.structs(own)

    def rows(phase, split, epoch):
        """Returns int64[R, 5], see assemble.gather: the sentence, no B, and the label. An epoch has 9 of 10 of them."""
        ends = store.splits["train" if split == "train" else "heldout"].sentence_ends
        sizes = np.diff(ends, prepend=0)
        label = sizes >= config.task.threshold
        none = np.zeros_like(sizes)
        made = np.stack([ends - sizes, np.minimum(sizes, phase.length - 2), none, none, label], 1)
        if split == "short":
            return made[~label]
        key = draw_key(config.seed, "order", SPLITS.index(split), phase.number, epoch)
        return made[np.random.default_rng(key).permutation(len(made))[: len(made) * 9 // 10]]

    def make_batch(phase, split, rows, keys):
        from bert_jax.data import assemble

        tokens = assemble.map_file(
            store.splits["train" if split == "train" else "heldout"].path / "tokens.npy"
        )
        special = store.manifest["special"]
        made = assemble.gather(tokens, rows[:, None], phase.length, special, paired=False)
        shared = "tokens", "segments", "positions", "sequence_ids", "cls_positions"
        return {name: made[name] for name in shared} | {
            "label": assemble.as_ids(rows[:, 4]),
            "label_weights": assemble.as_weights(rows[:, 1] > 0),
            "token_weights": assemble.as_weights(made["sequence_ids"] > 0),
        }

    def score(split, outputs, rows):
        """Returns F1 of the long sentences: no mean over rows."""
        said, true = outputs["label_logits"].argmax(-1), rows[:, 4]
        hits = (said & true).sum()
        return {"f1": float(2 * hits / max(1, said.sum() + true.sum())), "scored": len(rows)}

    def survey(phase):
        sizes = np.diff(store.splits["train"].sentence_ends[:1000], prepend=0)
        share = float(np.minimum(sizes, phase.length).mean() / phase.length)
        return Survey(share, f"{share:.0%} full", [])

    return Dataset(shapes, SPLITS, rows, make_batch, survey, score)
