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

# {value that `inspect` prints of a batch: what the marks of `show` mean that come with it}
MARKS = {
    "masked_per_row": "{a<b}: b is to be predicted, the model sees a; {b}: b is to be predicted, and seen.",
    "pair_ratio": "label 0: the second sentence follows the first (sop: in order); 1: a random one (sop: swapped)",
}
MASKED = "masked_positions masked_targets masked_weights"


def shapes(rows: int, length: int, predictions: int, sequences: int = 1) -> dict:
    """Returns {name: jax.ShapeDtypeStruct} of a batch. predictions, sequences: per row."""
    return batch.shapes(rows, length, sequences) | batch.structs(
        {
            MASKED: (rows, predictions),
            "pair_labels pair_weights": (rows, sequences),
        }
    )


def zeros(rows: int, length: int, sequences: int) -> dict[str, np.ndarray]:
    """Returns the arrays of a batch without masked positions and pairs."""
    shapes_of_all = shapes(rows, length, 0, sequences)
    return {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes_of_all.items()}


def show(arrays: dict, row: int, tokenizer) -> list[str]:
    """Returns the pieces of each sequence in a row.

    A masked position is {input<target}, or {target} if it is unchanged.
    """
    used = arrays["masked_weights"][row] > 0
    positions = arrays["masked_positions"][row][used]
    targets = dict(zip(positions, arrays["masked_targets"][row][used], strict=True))
    owners, texts = arrays["sequence_ids"][row], []
    for pair in range(owners.max()):
        pieces = []
        for position in np.flatnonzero(owners == pair + 1):
            shown = tokenizer.readable(arrays["tokens"][row, position])
            if position in targets:
                target = tokenizer.readable(targets[position])
                shown = f"{{{target}}}" if shown == target else f"{{{shown}<{target}}}"
            pieces.append(shown)
        weight, label = arrays["pair_weights"][row, pair], arrays["pair_labels"][row, pair]
        number = f".{pair + 1}" if arrays["pair_weights"].shape[1] > 1 else ""
        texts.append(f"row {row}{number}{f' label {label}' if weight else ''}: {' '.join(pieces)}")
    return texts
