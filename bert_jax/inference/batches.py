"""Batches of texts that are not of a data set, in NumPy, and the loop over them.

A row has one sequence or several, packed: (ids, segments) each, as `Frame.wrap` returns them.

L length, P [MASK] tokens of a row, N texts.
"""

import sys
from collections.abc import Callable, Iterable

import numpy as np
from tqdm.auto import tqdm

from bert_jax.config import longest_row
from bert_jax.data import batch as contract
from bert_jax.runs import jax_setup
from bert_jax.tasks.text.mlm_batch import MASKED_ARRAYS

ROWS = 32  # texts at once: few enough for the memory of their states
TOKENS = 2048  # of a batch: few enough for the memory of their logits
MULTIPLE = 32  # of the lengths of batches, so that texts share compiled programs


def make_batch(rows: list[list[tuple]], count: int, length: int, pad: int | None = 0) -> dict:
    """Returns the arrays of the batch contract (data/batch.py) for `count` rows, of which the first have sequences.

    rows: sequences of each row, see above.
    pad: the id of [PAD]; None: 0, since `sequence_ids` say where padding is.
    """
    sequences = max(map(len, rows), default=1)
    shapes = contract.shapes(count, length, sequences)
    arrays = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    arrays["tokens"][:] = pad or 0
    arrays["rows"][:] = np.arange(count)
    arrays["row_weights"][: len(rows)] = 1
    for row, parts in enumerate(rows):
        start = 0
        for number, (ids, segments) in enumerate(parts):
            place = row, slice(start, start + len(ids))
            arrays["tokens"][place] = ids
            arrays["segments"][place] = segments
            arrays["positions"][place] = np.arange(len(ids))
            arrays["sequence_ids"][place] = number + 1
            arrays["cls_positions"][row, number] = start
            start += len(ids)
    return arrays


def add_masks(arrays: dict, mask: int, targets: Iterable[list[int]]) -> dict:
    """Returns a batch with the arrays that masked LM reads (tasks/text/mlm_batch.py).

    targets: for each row, the ids at its first [MASK] tokens, which are its predictions. P is a power of two.
    """
    most = round_up(max(map(len, targets)))
    shapes = contract.structs({MASKED_ARRAYS: (len(arrays["tokens"]), most)})
    masked = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    for row, ids in enumerate(targets):
        places = np.flatnonzero(arrays["tokens"][row] == mask)
        masked["masked_positions"][row, : len(ids)] = places[: len(ids)]
        masked["masked_targets"][row, : len(ids)] = ids
        masked["masked_weights"][row, : len(ids)] = 1
    return arrays | masked


def padded_length(size: int, longest: int) -> int:
    """Returns the length of a batch for a text of `size` tokens, at most the `longest` that the model can have."""
    return min(longest, -(-size // MULTIPLE) * MULTIPLE)


def round_up(count: int) -> int:
    """Returns the next power of two."""
    return 1 << max(0, count - 1).bit_length()


def run_texts(
    model,
    run: Callable,
    sizes: Iterable[int],
    row_of: Callable,
    rows: int = ROWS,
    tokens: int = sys.maxsize,
) -> list:
    """Returns the result of each of N texts, in their order. Prints progress on a terminal or in a notebook.

    Texts of similar sizes share a batch, the longest ones first. Lengths are multiples of MULTIPLE, or `longest_row`;
    rows are powers of two, or those at most.

    model: its config and vocabulary.
    run: (batch, numbers of its texts) -> the result of each of them, and of rows that only fill the batch.
    sizes: tokens of each text with special ones, at most `longest_row`.
    row_of: (number of a text) -> its sequences, see `make_batch`.
    rows, tokens: of a batch, at most.
    """
    sizes = np.array(sizes)
    longest = longest_row(model.config)
    order = np.argsort(-sizes, kind="stable")
    results = [None] * len(order)
    rows = min(rows, round_up(len(order)))
    first = 0
    is_alone = len(order) == 1
    bar = tqdm(total=len(order), unit="text", disable=is_alone or None)
    with bar as progress, jax_setup.precise(model.config):
        while first < len(order):
            length = padded_length(int(sizes[order[first]]), longest)
            count = min(rows, max(1, tokens // length))
            numbers = order[first : first + count].tolist()
            batch = make_batch([*map(row_of, numbers)], count, length, model.vocabulary.pad)
            batch["rows"][: len(numbers)] = numbers
            for number, result in zip(numbers, run(batch, numbers), strict=False):
                results[number] = result
            progress.update(len(numbers))
            first += count
    return results
