"""Fill in the mask: batches of texts with [MASK] tokens, and how well an objective's model predicts these.

B rows of texts, P [MASK] tokens in a row, N in all texts.
"""

from functools import partial
from itertools import chain

import jax
import numpy as np

from bert_jax.config import longest_row
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

ROWS = 32  # texts measured at once: few enough for the memory of their logits
MULTIPLE = 32  # of the lengths of batches, so that texts share compiled programs
PAIRS = 4  # of the rows of a random batch
LENGTH = 64  # of these rows, at most


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


def random_batch(longest: int, vocabulary: Vocabulary) -> dict:
    """Returns a batch of random tokens to compare models on; every second row is half padding.

    longest: the largest number of positions that a row may have.
    """
    length = min(LENGTH, longest)
    generator = np.random.default_rng(0)
    texts = []
    for size in (length, length // 2) * PAIRS:
        ids = generator.integers(vocabulary.size, size=size - 2)
        if vocabulary.mask is not None:
            ids[::8] = vocabulary.mask
        texts.append(ids)
    predictions = max(np.count_nonzero(ids == vocabulary.mask) for ids in texts)
    return make_batch(texts, 2 * PAIRS, length, predictions, vocabulary)


def outputs(model, batch: dict) -> dict[str, np.ndarray]:
    """Returns the outputs of a model on a batch, except those of untrained heads, without the padding of the
    vocabulary. Those of a model that generates text are its logits for the texts of the batch."""
    heads = model.objective.heads
    untrained = load_model.untrained_parts(model)
    network = model.objective.network

    def compute(params, batch):
        if network is None:
            return model.objective.outputs(params, batch)
        return network.apply({"params": params}, batch, None)

    arrays = jax.jit(compute)(model.params, batch)
    result = {}
    for name, array in arrays.items():
        if name in model.objective.vocabulary_outputs:
            array = array[..., : model.vocabulary.size]
        if heads.get(name, set()).isdisjoint(untrained):
            result[name] = np.asarray(array)
    return result


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
