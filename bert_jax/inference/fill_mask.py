"""Fills in masks: what a masked LM predicts at the [MASK] tokens of texts, and how well.

B rows of texts, P [MASK] tokens in a row, N texts.
"""

from collections.abc import Callable, Iterable
from functools import partial

import jax
import numpy as np

from bert_jax.config import longest_row
from bert_jax.errors import BadInput
from bert_jax.inference.batches import ROWS, TOKENS, add_masks, run_texts
from bert_jax.objectives import base


def measure(
    model, targets: list[list[int]], sizes: Iterable[int], row_of: Callable, rows: int = ROWS
) -> list[tuple]:
    """Returns of each text (float32 nats, bool whether the target is the most likely piece) of its targets.

    model: its config, objective, params and vocabulary.
    targets: for each text, the ids at its first [MASK] tokens.
    sizes, row_of, rows: see `run_texts`.
    """
    params = jax.device_put(model.params)

    def run(batch, numbers):
        chosen = [targets[number] for number in numbers]
        batch = add_masks(batch, model.vocabulary.mask, chosen)
        columns = jax.device_get(predict(model.objective.outputs, params, batch))
        for ids, *values in zip(chosen, *columns, strict=False):
            yield [value[: len(ids)] for value in values]

    return run_texts(model, run, sizes, row_of, rows, TOKENS)


@partial(jax.jit, static_argnums=0)
def predict(outputs, params, batch):
    """Returns (float32[B, P] nats, bool[B, P] whether the target is the most likely piece) of [MASK] tokens."""
    logits = outputs(params, batch)["mlm_logits"]
    targets = batch["masked_targets"]
    return base.cross_entropy(logits, targets), logits.argmax(axis=-1) == targets


def candidates(model, texts: list[str], top: int, places: list[str]) -> list[list[list[dict]]]:
    """Returns [{piece, probability}] of the `top` most likely pieces, for each [MASK] of each text.

    places: of the texts, for messages.

    Raises BadInput for a text without [MASK], or with more tokens than the model has positions.
    """
    mask = model.vocabulary.mask
    size = model.vocabulary.size
    longest = longest_row(model.config)
    rows = []
    targets = []
    for place, text in zip(places, texts, strict=True):
        ids, segments = model.frame.wrap(model.tokenizer.encode_with_masks(text))
        if mask not in ids:
            raise BadInput(f"{place}: has no [MASK] to fill in")
        if len(ids) > longest:
            raise BadInput(f"{place}: {len(ids)} tokens, the model has {longest} positions")
        rows.append([(ids, segments)])
        targets.append([0] * ids.count(mask))
    params = jax.device_put(model.params)

    def run(batch, numbers):
        chosen = [targets[number] for number in numbers]
        batch = add_masks(batch, mask, chosen)
        found = most_likely(model.objective.outputs, (size, min(top, size)), params, batch)
        for masks, *values in zip(chosen, *jax.device_get(found), strict=False):
            pairs = zip(*values, strict=True)
            yield [describe_pieces(model, *pair) for _, pair in zip(masks, pairs, strict=False)]

    sizes = [len(ids) for [(ids, _)] in rows]
    return run_texts(model, run, sizes, rows.__getitem__, tokens=TOKENS)


@partial(jax.jit, static_argnums=(0, 1))
def most_likely(outputs, counts, params, batch):
    """Returns (float32[B, P, top] probabilities, int32[B, P, top] ids), the largest first. counts: (pieces of the
    vocabulary, top)."""
    size, top = counts
    logits = outputs(params, batch)["mlm_logits"][..., :size]
    return jax.lax.top_k(jax.nn.softmax(logits, axis=-1), top)


def describe_pieces(model, probabilities: np.ndarray, ids: np.ndarray) -> list[dict]:
    """Returns {piece, probability} of each id."""
    readable = model.tokenizer.readable
    pairs = zip(ids.tolist(), probabilities.tolist(), strict=True)
    return [{"piece": readable(id), "probability": share} for id, share in pairs]


def describe(masks: list[list[dict]]) -> list[str]:
    """Returns a line for each [MASK] of a text. masks: those of `candidates`."""
    lines = []
    for number, pieces in enumerate(masks, 1):
        texts = [f"{piece['piece']} {piece['probability']:.3f}" for piece in pieces]
        lines.append(f"  [MASK] {number}: {'  '.join(texts)}")
    return lines
