"""The arrays that masked LM reads besides those of the batch contract (data/batch.py).

B rows, L length, P predictions per row, S sequences packed in a row.

    tokens            int32[B, L]    after masking
    masked_positions  int32[B, P]    position in the row; 0 where the weight is 0
    masked_targets    int32[B, P]
    masked_weights    float32[B, P]
    pair_labels       int32[B, S]    NSP: 0 the next sentence, 1 a random one. SOP: 0 in order, 1 swapped
    pair_weights      float32[B, S]
"""

from bert_jax.data import batch

MASKED_ARRAYS = "masked_positions masked_targets masked_weights"


def shapes(rows: int, length: int, predictions: int, sequences: int = 1) -> dict:
    """Returns {name: jax.ShapeDtypeStruct} of a batch. predictions, sequences: per row."""
    return batch.shapes(rows, length, sequences) | batch.structs(
        {
            MASKED_ARRAYS: (rows, predictions),
            "pair_labels pair_weights": (rows, sequences),
        }
    )
