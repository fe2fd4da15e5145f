"""Batches of texts that are not of a data set, for models of any objective.

B rows, L length.
"""

import numpy as np

from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

ROWS = 32  # texts at once: few enough for the memory of their logits
MULTIPLE = 32  # of the lengths of batches, so that texts share compiled programs


def make_batch(
    texts: list[list[int]], rows: int, length: int, predictions: int, vocabulary: Vocabulary
) -> dict:
    """Returns a batch whose first rows are [CLS] text [SEP]; the [MASK] tokens are its predictions.

    A vocabulary may lack special tokens. Without [PAD], padding is the id 0: `sequence_ids` says where it is.

    texts: token ids of each text, at most `rows` of them.
    predictions: per row, as many as the [MASK] tokens of a text at least.
    """
    shapes = mlm_batch.shapes(rows, length, predictions)
    arrays = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    arrays["tokens"][:] = vocabulary.pad or 0
    arrays["rows"][:] = np.arange(rows)
    arrays["row_weights"][: len(texts)] = 1
    for row, ids in enumerate(texts):
        tokens = [vocabulary.cls, *ids, vocabulary.sep]
        tokens = [token for token in tokens if token is not None]
        size = len(tokens)
        arrays["tokens"][row, :size] = tokens
        arrays["positions"][row, :size] = np.arange(size)
        arrays["sequence_ids"][row, :size] = 1
        positions = np.flatnonzero(arrays["tokens"][row] == vocabulary.mask)
        arrays["masked_positions"][row, : len(positions)] = positions
        arrays["masked_weights"][row, : len(positions)] = 1
    return arrays


def padded_length(size: int, longest: int) -> int:
    """Returns the length of a batch for a text of `size` tokens, at most the `longest` that the model can have."""
    return min(longest, -(-size // MULTIPLE) * MULTIPLE)
