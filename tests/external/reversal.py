"""Pairs of texts without labels, one in a row or, to train on, two: the target is predicted from the source."""

import numpy as np

from bert_jax.data import batch
from bert_jax.data.dataset import Dataset
from bert_jax.tasks.supervised import examples, parallel_texts, texts
from bert_jax.tokenizers.special_tokens import BERT_FRAME, parse_frame

DEFAULTS = {**parallel_texts.DEFAULTS}
PACKED = 2
FRAME = parse_frame(BERT_FRAME)
TARGET = "tokens positions sequence_ids"
EXAMPLES = examples.Examples(
    load=parallel_texts.load,
    parse=parallel_texts.parse,
    encode=parallel_texts.encode,
)


def check(config):
    texts.check(config, paired=False)


def make(config, store=None):
    splits = examples.split_names(config)

    def shapes(phase, rows):
        target = {f"target_{name}": (rows, phase.length) for name in TARGET.split()}
        return batch.shapes(rows, phase.length, PACKED) | batch.structs(target)

    def rows(phase, split, epoch):
        """Returns int64[R, S, 2, 5]: the places of source and target of each pair, see `gather`."""
        single = texts.single_texts(store.splits[split], phase.length // PACKED - FRAME.size())
        if split != splits[0]:
            alone = np.zeros((len(single), PACKED, *single.shape[1:]), single.dtype)
            alone[:, 0] = single
            return alone
        count = len(single) // PACKED
        return single[: count * PACKED].reshape(count, PACKED, *single.shape[1:])

    def make_batch(phase, split, rows, keys):
        from bert_jax.data import assemble

        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        special = store.manifest["special"]
        around = FRAME.ids(special), special["pad"]
        source, target = (
            assemble.gather(tokens, rows[:, :, number], phase.length, *around, paired=False)
            for number in (0, 1)
        )
        arrays = source | {f"target_{name}": target[name] for name in TARGET.split()}
        return {name: arrays[name] for name in shapes(phase, 1) if name in arrays}

    def score(split, outputs, rows):
        """Returns the share of rows whose target is decoded exactly; the end token follows it."""
        tokens = np.load(store.splits[split].path / "tokens.npy", mmap_mode="r")
        hits = []
        best = outputs["translations"][:, 0]
        for (start, size, *_), decoded in zip(rows[:, 0, 1], best, strict=True):
            is_exact = (decoded[:size] == tokens[start : start + size]).all()
            hits.append(is_exact and not decoded[size + 1 :].any())
        return {"exact": float(np.mean(hits))}

    return Dataset(
        shapes=shapes,
        splits=splits,
        rows=rows,
        make=make_batch,
        score=score,
        sequences=lambda phase: PACKED,
    )
