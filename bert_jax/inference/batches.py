"""Batches of texts that are not of a data set, in NumPy, and the loop over them.

A row has one sequence or several, packed: (ids, segments) each, as `Frame.wrap` returns them.

L length, P [MASK] tokens of a row, N texts.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np
from tqdm.auto import tqdm

from bert_jax.config import longest_row
from bert_jax.data import batch as contract
from bert_jax.errors import BadInput
from bert_jax.runs import jax_setup
from bert_jax.tasks.text.mlm_batch import MASKED_ARRAYS

ROWS = 32  # texts at once: few enough for the memory of their states
TOKENS = 2048  # of a batch: few enough for the memory of their logits
MULTIPLE = 32  # of the lengths of batches, so that texts share compiled programs


def make_batch(rows: list[list[tuple]], length: int, pad: int | None = 0) -> dict:
    """Returns the arrays of the batch contract (data/batch.py).

    rows: sequences of each row, see above.
    pad: the id of [PAD]; None: 0, since `sequence_ids` say where padding is.
    """
    arrays = contract.zeros(contract.shapes(len(rows), length, max(map(len, rows))))
    arrays["tokens"][:] = pad or 0
    arrays["row_weights"][:] = 1
    for row, parts in enumerate(rows):
        start = 0
        for number, (ids, segments) in enumerate(parts):
            index = row, slice(start, start + len(ids))
            arrays["tokens"][index] = ids
            arrays["segments"][index] = segments
            arrays["positions"][index] = np.arange(len(ids))
            arrays["sequence_ids"][index] = number + 1
            arrays["cls_positions"][row, number] = start
            start += len(ids)
    return arrays


def check_length(model, ids: list[int], location: str) -> None:
    """Raises BadInput for the tokens of a row if the model has fewer positions. location: of its text."""
    longest = longest_row(model.config)
    if len(ids) > longest:
        raise BadInput(f"{location}: {len(ids)} tokens, the model has {longest} positions")


def add_masks(arrays: dict, mask: int, targets: Iterable[list[int]]) -> dict:
    """Returns a batch with the arrays that masked LM reads (tasks/text/mlm_batch.py).

    targets: for each row, the ids at its first [MASK] tokens, which are its predictions. P is a power of two.
    """
    most = round_up(max(map(len, targets)))
    masked = contract.zeros(contract.structs({MASKED_ARRAYS: (len(arrays["rows"]), most)}))
    for row, ids in enumerate(targets):
        size = len(ids)
        positions = np.flatnonzero(arrays["tokens"][row] == mask)
        values = positions[:size], ids, 1
        for name, value in zip(masked, values, strict=True):
            masked[name][row, :size] = value
    return arrays | masked


def round_up(count: int) -> int:
    """Returns the next power of two."""
    return 1 << max(0, count - 1).bit_length()


def run_texts(
    model,
    run: Callable,
    rows: Sequence[list[tuple]],
    sizes: np.ndarray | None = None,
    count: int = ROWS,
    tokens: int = sys.maxsize,
) -> list:
    """Returns the result of each row, in their order. Prints progress on a terminal or in a notebook.

    Rows of similar sizes share a batch, the longest ones first. Lengths are multiples of MULTIPLE, or `longest_row`.
    Batches have `count` rows, or the next power of two if there are fewer, some of them twice.

    model: its config, vocabulary and params.
    run: (params, batch, numbers of its rows) -> the result of each of them.
    rows: the sequences of each, see `make_batch`; read batch by batch.
    sizes: int64[N], tokens of each row, at most `longest_row`; None: they are counted.
    count, tokens: of a batch, at most.
    """
    params = jax.device_put(model.params)
    longest = longest_row(model.config)
    if sizes is None:
        sizes = np.array([sum(len(ids) for ids, _ in row) for row in rows])
    order = np.argsort(-sizes, kind="stable")
    results = [None] * len(order)
    count = min(count, round_up(len(order)))
    first = 0
    bar = tqdm(total=len(order), unit="text", disable=len(order) == 1 or None)
    with bar as progress, jax_setup.precise(model.config):
        while first < len(order):
            length = min(longest, MULTIPLE * math.ceil(max(1, sizes[order[first]]) / MULTIPLE))
            size = min(count, max(1, tokens // length))
            part = order[first : first + size]
            numbers = np.resize(part, size).tolist()  # fewer rows are repeated
            batch = make_batch([rows[number] for number in numbers], length, model.vocabulary.pad)
            batch["rows"][:] = numbers
            for number, result in zip(numbers, run(params, batch, numbers), strict=True):
                results[number] = result
            progress.update(len(part))
            first += size
    return results
