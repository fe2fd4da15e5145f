"""Fills in masks: what a masked LM predicts at the [MASK] tokens of texts, and how well.

B rows of texts, P [MASK] tokens in a row, N in all texts.
"""

from functools import partial
from itertools import chain

import jax
import numpy as np

from bert_jax.config import longest_row
from bert_jax.errors import BadInput
from bert_jax.inference.batches import ROWS, make_batch, padded_length
from bert_jax.objectives import base


def measure(model, texts: list[list[int]], targets: list[list[int]], length: int) -> tuple:
    """Returns float64[N] nats and bool[N] whether the target is the most likely piece, of all [MASK] tokens in order.

    model: its objective, params and vocabulary.
    texts: token ids of each text.
    targets: for each text, the ids at its [MASK] tokens.
    length: of the batches; at least that of each text with [CLS] and [SEP].
    """
    run = jax.jit(partial(predict, model.objective))
    params = jax.device_put(model.params)
    predictions = max(map(len, targets))
    nats = []
    correct = []
    for first in range(0, len(texts), ROWS):
        part = slice(first, first + ROWS)
        batch = make_batch(texts[part], ROWS, length, predictions, model.vocabulary)
        is_masked = batch["masked_weights"] > 0
        batch["masked_targets"][is_masked] = [*chain(*targets[part])]
        batch_nats, batch_correct = run(params, batch)
        nats.append(np.asarray(batch_nats)[is_masked])
        correct.append(np.asarray(batch_correct)[is_masked])
    return np.concatenate(nats).astype(np.float64), np.concatenate(correct)


def predict(objective, params, arrays):
    """Returns (float32[B, P] nats, bool[B, P] whether the target is the most likely piece) of [MASK] tokens."""
    logits = objective.outputs(params, arrays)["mlm_logits"]
    targets = arrays["masked_targets"]
    return base.cross_entropy(logits, targets), logits.argmax(axis=-1) == targets


def candidates(model, text: str, top: int, place: str) -> list[list[dict]]:
    """Returns [{piece, probability}] of the `top` most likely pieces, for each [MASK] of a text.

    place: of the text, for messages.

    Raises BadInput for a text without [MASK], or with more tokens than the model has positions.
    """
    ids = model.tokenizer.encode_with_masks(text)
    number = ids.count(model.vocabulary.mask)
    if not number:
        raise BadInput(f"{place}: has no [MASK] to fill in")
    size = len(ids) + 2
    longest = longest_row(model.config)
    if size > longest:
        raise BadInput(f"{place}: {size} tokens, the model has {longest} positions")
    batch = make_batch([ids], 1, padded_length(size, longest), number, model.vocabulary)
    outputs = jax.jit(model.objective.outputs)(model.params, batch)
    logits = outputs["mlm_logits"][0, :, : model.vocabulary.size]
    masks = []
    for probabilities in np.asarray(jax.nn.softmax(logits, axis=-1)):
        pieces = [
            {"piece": model.tokenizer.readable(id), "probability": float(probabilities[id])}
            for id in np.argsort(-probabilities)[:top]
        ]
        masks.append(pieces)
    return masks


def describe(masks: list[list[dict]]) -> list[str]:
    """Returns a line for each [MASK] of a text. masks: its `candidates`."""
    lines = []
    for number, pieces in enumerate(masks, 1):
        texts = [f"{piece['piece']} {piece['probability']:.3f}" for piece in pieces]
        lines.append(f"  [MASK] {number}: {'  '.join(texts)}")
    return lines
