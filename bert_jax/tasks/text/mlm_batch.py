"""The arrays that masked LM reads besides those of the batch contract (data/batch.py).

B rows, L length, P predictions per row, S sequences packed in a row.

    tokens            int32[B, L]    after masking
    masked_positions  int32[B, P]    position in the row; 0 where the weight is 0
    masked_targets    int32[B, P]
    masked_weights    float32[B, P]
    pair_labels       int32[B, S]    NSP: 0 the next sentence, 1 a random one. SOP: 0 in order, 1 swapped
    pair_weights      float32[B, S]
"""

import numpy as np

from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.objectives import mlm

# {value of `describe`: what the marks of `show` mean that come with it}
MARKS = {
    "masked_per_row": "{a<b}: b is to be predicted, the model sees a; {b}: b is to be predicted, and seen.",
    "pair_ratio": "label 0: the second sentence follows the first (sop: in order); 1: a random one (sop: swapped)",
}
LABEL_1 = {"nsp": "a random second sentence", "sop": "swapped sentences"}  # by pair task
FEW = 100  # pairs; fewer are not judged
MOST_RANDOM = 0.75  # in the original BERT, a little more than half of the pairs are random
MASKED = mlm.READS


def shapes(rows: int, length: int, predictions: int, sequences: int = 1) -> dict:
    """Returns {name: jax.ShapeDtypeStruct} of a batch. predictions, sequences: per row."""
    return batch.shapes(rows, length, sequences) | batch.structs(
        {
            MASKED: (rows, predictions),
            "pair_labels pair_weights": (rows, sequences),
        }
    )


def describe(arrays: dict, rows: int, tokenizer) -> dict:
    """Returns real_token_share, pair_ratio, pairs_per_row, and masked_per_row of a batch of any task, and as `rows` the
    texts of its first rows, see `show`. The numbers of pairs and masks are None if there are none.
    """
    size, length = arrays["tokens"].shape
    absent = shapes(size, length, 0, arrays["cls_positions"].shape[1])
    zeros = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in absent.items()}
    arrays = zeros | arrays
    weights = arrays["pair_weights"].sum()
    texts = []
    for row in range(min(rows, size)):
        texts += show(arrays, row, tokenizer)
    return {
        "real_token_share": float((arrays["sequence_ids"] > 0).mean()),
        "pair_ratio": float(arrays["pair_labels"].sum() / weights) if weights else None,
        "pairs_per_row": float(arrays["sequence_ids"].max(axis=1).mean()),
        "masked_per_row": float(arrays["masked_weights"].sum() / size) or None,
        "rows": texts,
    }


def judge_pairs(pair_task: str, labels: np.ndarray, key: str) -> tuple[str, list[str]]:
    """Returns the share of pairs with label 1 for the log, and a warning, with a remedy, if nothing is learnt from it.

    labels: of a sample of pairs. key: that of the length of rows, and its value. Raises BadInput if all pairs have the
    same label.
    """
    ratio = float(labels.mean())
    text = f"{ratio:.0%} of pairs have {LABEL_1[pair_task]} (label 1)"
    if len(labels) < FEW or 0 < ratio <= MOST_RANDOM:
        return text, []
    reason = f"expected a little over half: documents have too few sentences for {key}"
    remedy = "check corpus.format and corpus.sentences, or set objective.pair_task=none"
    warning = f"{text}, {reason}; {remedy}"
    if ratio in (0, 1):
        raise BadInput(f"config.objective.pair_task={pair_task!r}: {warning}")
    return text, [warning]


def show(arrays: dict, row: int, tokenizer) -> list[str]:
    """Returns the pieces of each sequence in a row.

    A masked position is {input<target}, or {target} if it is unchanged.
    """
    used = arrays["masked_weights"][row] > 0
    positions = arrays["masked_positions"][row][used]
    targets = dict(zip(positions, arrays["masked_targets"][row][used], strict=True))
    owners = arrays["sequence_ids"][row]
    texts = []
    for pair in range(owners.max()):
        pieces = []
        for position in np.flatnonzero(owners == pair + 1):
            shown = tokenizer.readable(arrays["tokens"][row, position])
            if position in targets:
                target = tokenizer.readable(targets[position])
                if shown == target:
                    shown = f"{{{target}}}"
                else:
                    shown = f"{{{shown}<{target}}}"
            pieces.append(shown)
        name = f"row {row}"
        if arrays["pair_weights"].shape[1] > 1:
            name += f".{pair + 1}"
        if arrays["pair_weights"][row, pair]:
            name += f" label {arrays['pair_labels'][row, pair]}"
        texts.append(f"{name}: {' '.join(pieces)}")
    return texts
