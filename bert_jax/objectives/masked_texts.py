"""Batches of texts whose [MASK] tokens are to be predicted."""

import numpy as np

from bert_jax.objectives import masked_batch
from bert_jax.tokenizers.special_tokens import Vocabulary


def make_batch(
    texts: list[list[int]], rows: int, length: int, predictions: int, vocabulary: Vocabulary
) -> dict:
    """Returns a batch whose first rows are [CLS] text [SEP]; the [MASK] tokens are its predictions.

    texts: token ids of each text, at most `rows` of them. predictions: per row.
    """
    shapes = masked_batch.shapes(rows, length, predictions)
    arrays = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    arrays["tokens"][:] = vocabulary.pad
    arrays["rows"][:] = np.arange(rows)
    arrays["row_weights"][: len(texts)] = 1
    for row, ids in enumerate(texts):
        size = len(ids) + 2
        arrays["tokens"][row, :size] = [vocabulary.cls, *ids, vocabulary.sep]
        arrays["positions"][row, :size] = np.arange(size)
        arrays["sequence_ids"][row, :size] = 1
        masked = np.flatnonzero(arrays["tokens"][row] == vocabulary.mask)
        arrays["masked_positions"][row, : len(masked)] = masked
        arrays["masked_weights"][row, : len(masked)] = 1
    return arrays
