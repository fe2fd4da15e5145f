"""Fill in the mask: batches of texts with [MASK] tokens, and how well an objective's model predicts these.

B rows of texts, P [MASK] tokens in a row, N in all texts.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain

import jax
import numpy as np

from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

ROWS = 32  # texts measured at once: few enough for the memory of their logits
PAIRS, LENGTH = 4, 64  # of the rows of a random batch, and their length at most


def make_batch(
    texts: list[list[int]], rows: int, length: int, predictions: int, vocabulary: Vocabulary
) -> dict:
    """Returns a batch whose first rows are [CLS] text [SEP]; the [MASK] tokens are its predictions.

    texts: token ids of each text, at most `rows` of them. predictions: per row.
    """
    shapes = mlm_batch.shapes(rows, length, predictions)
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


def random_batch(longest: int, vocabulary: Vocabulary) -> dict:
    """Returns a batch of random tokens to compare models on; every second row is half padding.

    longest: the largest number of positions that a row may have.
    """
    length, draw = min(LENGTH, longest), np.random.default_rng(0)
    texts = [draw.integers(vocabulary.size, size=n - 2) for n in (length, length // 2) * PAIRS]
    for ids in texts:
        ids[::8] = vocabulary.mask
    predictions = max(np.count_nonzero(ids == vocabulary.mask) for ids in texts)
    return make_batch(texts, 2 * PAIRS, length, predictions, vocabulary)


def outputs(model, batch: dict, untrained: list[str]) -> dict[str, np.ndarray]:
    """Returns the outputs of a model on a batch, without the padding of the vocabulary.

    untrained: parts of the parameters; the outputs that need them are left out.
    """
    heads = getattr(base.module_of(model.config), "HEADS", {})
    arrays = jax.jit(model.objective.outputs)(model.params, batch)
    trained = [name for name in arrays if heads.get(name, set()).isdisjoint(untrained)]
    return {name: np.asarray(arrays[name])[..., : model.vocabulary.size] for name in trained}


def measure(model, texts: list[list[int]], targets: list[list[int]], length: int) -> tuple:
    """Returns float64[N] nats and bool[N] whether the target is the most likely piece, of all [MASK] tokens in order.

    model: its objective, params and vocabulary. texts: token ids. targets: for each text, the ids at its [MASK] tokens.
    """
    function, results = jax.jit(partial(predict, model.objective)), []
    predictions, params = max(map(len, targets)), jax.device_put(model.params)
    for start in range(0, len(texts), ROWS):
        part = slice(start, start + ROWS)
        arrays = make_batch(texts[part], ROWS, length, predictions, model.vocabulary)
        used = arrays["masked_weights"] > 0
        arrays["masked_targets"][used] = [*chain(*targets[part])]
        results.append([np.asarray(values)[used] for values in function(params, arrays)])
    nats, correct = map(np.concatenate, zip(*results, strict=True))
    return nats.astype(np.float64), correct


def predict(objective, params, arrays):
    """Returns (float32[B, P] nats, bool[B, P] whether the target is the most likely piece) of [MASK] tokens."""
    logits = objective.outputs(params, arrays)["mlm_logits"]
    targets = arrays["masked_targets"]
    return base.cross_entropy(logits, targets), logits.argmax(axis=-1) == targets


def candidates(model, text: str, top: int, place: str) -> list[list[dict]]:
    """Returns [{piece, probability}] of the `top` most likely pieces, for each [MASK] of a text.

    place: of the text, for messages. Raises BadInput for a text without [MASK], or with more tokens than the model has
    positions.
    """
    outputs = jax.jit(model.objective.outputs)(model.params, encode(model, text, place))
    logits = outputs["mlm_logits"][0, :, : model.vocabulary.size]
    return [
        [
            {"piece": model.tokenizer.readable(id), "probability": float(row[id])}
            for id in np.argsort(-row)[:top]
        ]
        for row in np.asarray(jax.nn.softmax(logits, axis=-1))
    ]


def describe(masks: list[list[dict]]) -> Iterator[str]:
    """Yields a line for each [MASK] of a text. masks: its `candidates`."""
    for number, found in enumerate(masks, 1):
        shown = "  ".join(f"{each['piece']} {each['probability']:.3f}" for each in found)
        yield f"  [MASK] {number}: {shown}"


def encode(model, text: str, place: str) -> dict:
    """Returns a batch of one row, whose masked positions are the masks of the text. place: see `candidates`."""
    ids = model.tokenizer.encode_with_masks(text)
    masks, longest = ids.count(model.vocabulary.mask), model.config.model.max_length
    if not masks:
        raise BadInput(f"{place}: has no [MASK] to fill in")
    if len(ids) + 2 > longest:
        raise BadInput(f"{place}: {len(ids) + 2} tokens, the model has {longest} positions")
    # Lengths are rounded up to multiples of 32, so that texts share compiled programs.
    length = min(longest, -(-(len(ids) + 2) // 32) * 32)
    return make_batch([ids], 1, length, masks, model.vocabulary)
