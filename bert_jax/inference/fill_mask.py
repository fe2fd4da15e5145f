"""Fills in masks: what a masked LM predicts at the [MASK] tokens of texts, and how well.

B rows of texts, P [MASK] tokens in a row, N texts.
"""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from bert_jax.errors import BadInput
from bert_jax.inference.batches import ROWS, TOKENS, add_masks, check_length, run_texts
from bert_jax.objectives import base


def measure(
    model,
    targets: list,
    rows: Sequence,
    sizes=None,
    count: int = ROWS,
    top: int = 1,
) -> list[list[np.ndarray]]:
    """Returns for each text what `predict` does for its targets, without B.

    model: its config, objective, params and vocabulary.
    targets: for each text, the ids at its first [MASK] tokens.
    rows, sizes, count: see `run_texts`.
    """
    vocabulary = model.vocabulary
    counts = vocabulary.size, min(top, vocabulary.size)

    def run(params, batch, numbers):
        chosen = [targets[number] for number in numbers]
        batch = add_masks(batch, vocabulary.mask, chosen)
        results = jax.device_get(predict(model.objective.outputs, counts, params, batch))
        for ids, *values in zip(chosen, *results, strict=True):
            yield [value[: len(ids)] for value in values]

    return run_texts(model, run, rows, sizes, count, TOKENS)


@partial(jax.jit, static_argnums=(0, 1))
def predict(outputs, counts, params, batch):
    """Returns float32[B, P], the nats of targets; float32[B, P, top], the probabilities of the most likely pieces; and
    int32[B, P, top], these pieces. counts: (pieces of the vocabulary, top)."""
    size, top = counts
    logits = outputs(params, batch)["mlm_logits"][..., :size]
    nats = base.cross_entropy(logits, batch["masked_targets"])
    return nats, *jax.lax.top_k(jax.nn.softmax(logits, axis=-1), top)


def candidates(model, texts: list[str], top: int, locations: list[str]) -> list[list[list[dict]]]:
    """Returns [{piece, probability}] of the `top` most likely pieces, for each [MASK] of each text.

    locations: of the texts, for messages.

    Raises BadInput for a text without [MASK], or with more tokens than the model has positions.
    """
    rows = []
    for location, text in zip(locations, texts, strict=True):
        ids, segments = model.frame.wrap(model.tokenizer.encode_with_masks(text))
        if model.vocabulary.mask not in ids:
            raise BadInput(f"{location}: has no [MASK] to fill in")
        check_length(model, ids, location)
        rows.append([(ids, segments)])
    return fill(model, rows, top)


def fill(model, rows: list[list[tuple]], top: int) -> list[list[list[dict]]]:
    """Returns [{piece, probability}] of the `top` most likely pieces, for each [MASK] of each row of one sequence."""
    targets = [[0] * ids.count(model.vocabulary.mask) for [(ids, _)] in rows]
    results = measure(model, targets, rows, top=top)
    return [[*map(partial(describe_pieces, model), *pieces)] for _, *pieces in results]


def describe_pieces(model, probabilities: np.ndarray, ids: np.ndarray) -> list[dict]:
    """Returns {piece, probability} of each id."""
    pieces = map(model.tokenizer.readable, ids.tolist())
    pairs = zip(pieces, probabilities.tolist(), strict=True)
    return [{"piece": piece, "probability": share} for piece, share in pairs]


def describe(masks: list[list[dict]]) -> list[str]:
    """Returns a line for each [MASK] of a text. masks: those of `candidates`."""
    lines = []
    for number, pieces in enumerate(masks, 1):
        texts = [f"{piece['piece']} {piece['probability']:.3f}" for piece in pieces]
        lines.append(f"  [MASK] {number}: {'  '.join(texts)}")
    return lines
