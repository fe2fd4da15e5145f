"""Batches of pairs of texts for the Transformer, with random tokens, several pairs in a row or one."""

import numpy as np

SIZES = [
    (5, 7),
    (3, 4),
    (6, 2),
    (4, 6),
    (2, 5),
    (7, 3),
]  # of source and target, special tokens included
FIRST = 5  # smaller ids are special tokens
BEGIN, END = 2, 3


def draw_pairs(vocabulary: int, seed: int = 0) -> list[tuple]:
    """Returns (source, target) of SIZES: the source ends with the end token, the target also has the begin token."""
    draw = np.random.default_rng(seed)
    pairs = []
    for source, target in SIZES:
        middle = draw.integers(FIRST, vocabulary, target - 2)
        pairs.append(
            (
                np.append(draw.integers(FIRST, vocabulary, source - 1), END),
                np.concatenate([[BEGIN], middle, [END]]).astype(int),
            )
        )
    return pairs


def make_batch(pairs: list, packed: int, length: int) -> dict:
    """Returns rows of `packed` pairs each, of `length` places on both sides."""
    rows = len(pairs) // packed
    arrays = {}
    for side, prefix in ((0, ""), (1, "target_")):
        tokens, positions, ids = np.zeros((3, rows, length), np.int32)
        for row in range(rows):
            start = 0
            for number, pair in enumerate(pairs[row * packed : (row + 1) * packed], 1):
                stop = start + len(pair[side])
                tokens[row, start:stop] = pair[side]
                positions[row, start:stop] = np.arange(stop - start)
                ids[row, start:stop] = number
                start = stop
        arrays |= {f"{prefix}tokens": tokens, f"{prefix}positions": positions}
        arrays[f"{prefix}sequence_ids"] = ids
    arrays |= {"rows": np.arange(rows, dtype=np.int32), "row_weights": np.ones(rows, np.float32)}
    return arrays


def draw_batch(shapes: dict, vocabulary: int, seed: int) -> dict:
    """Returns a batch with these shapes, of Dataset.shapes; a row has three pairs."""
    rows, length = shapes["tokens"].shape
    pairs = []
    for number in range(rows // 2):
        pairs += draw_pairs(vocabulary, rows * seed + number)
    zeros = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    return zeros | make_batch(pairs, 3, length)
