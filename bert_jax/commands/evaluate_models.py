"""Models of any vocabularies on the same held-out text: the same whole words masked for all of them.

B rows of windows, L length, P masked pieces a row, W words over all windows.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import config as configs
from bert_jax.commands import load_model, words
from bert_jax.data import batch as batches
from bert_jax.errors import BadInput
from bert_jax.runs import metrics

ROWS = 32  # windows at a time; their logits are held, and the padding of the last ones costs little


def evaluate(directories: list[Path], config, log=print) -> dict:
    """{words, windows, documents, characters, word_entropy, models: [...]} on the held-out text of a config.

    Of each model {model, nats_per_word, accuracy, pieces_per_word, bits_per_character, unknown, held_out, parameters}.
    All words weigh alike. A word's nats are the sum over its pieces, each guessed without the others; it is right if
    every piece is. A model whose vocabulary knows no case or accents has less to tell. `held_out` is whether the text
    is known to be new to the model: stores of other vocabularies hold out other documents of the same corpus.
    `word_entropy` is that of the words' own frequencies, in nats; of few words it is less than guessing by the
    frequencies of the language would cost.
    """
    # One dtype for all: what is compared is the models.
    models = [load_model.open_model(directory, ["dtype=float32"]) for directory in directories]
    for directory, model in zip(directories, models, strict=True):
        load_model.check_masks(directory, model)
    length = configs.phases(config)[-1].length
    length = min(length, *(model.config.model.positions for model in models))
    store = open_store(config, log)
    windows, unknown = read(config, store, [model.tokenizer for model in models], length)
    spans = [(window, *span) for window in windows for span in window.words.tolist()]
    characters = sum(end - start for _, start, end in spans)
    results = []
    for number, (directory, model) in enumerate(zip(directories, models, strict=True)):
        log(f"{directory}: {len(spans):,} words in {len(windows):,} windows")
        values = measure(model, windows, number, length)
        bits = values["nats_per_word"] / math.log(2) * len(spans) / characters
        known = {"unknown": int(unknown[number]), "held_out": is_new(model, store)}
        results.append({"model": str(directory), **values, "bits_per_character": bits, **known})
    return {
        "words": len(spans),
        "windows": len(windows),
        "documents": len({window.document for window in windows}),
        "characters": characters,
        "word_entropy": entropy(window.text[start:end] for window, start, end in spans),
        "models": results,
    }


def open_store(config, log):
    """The store of the config, prepared where it is missing."""
    from bert_jax.data import prepare

    prepare.prepare(config, log)
    return prepare.open_or_refuse(config)


def is_new(model, store) -> bool:
    """Whether a model is a run on this very store from the start, so that it never saw what is held out there."""
    own = model.facts.get("store_fingerprint") == store.fingerprint
    return own and "imported" not in model.facts


def read(config, store, tokenizers: list, length: int) -> tuple[list[words.Window], np.ndarray]:
    """The first windows of the held-out text, config.evaluate.rows at most; how many words each vocabulary lacked."""
    from bert_jax.data import heldout_text

    found, unknown = [], np.zeros(len(tokenizers), np.int64)
    with closing(heldout_text.documents(config, store)) as documents:
        for window in words.windows(documents, tokenizers, length - 2, config.seed):
            unknown += window.unknown
            if len(window.words):
                found.append(window)
            if len(found) == config.evaluate.rows:
                break
    if not found:
        raise BadInput(f"{store.path}: no held-out word is known to every model")
    return found, unknown


def entropy(texts: Iterator[str]) -> float:
    counts = np.array(list(Counter(texts).values()))
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


# --- One model ------------------------------------------------------------------------------------


def measure(model, windows: list[words.Window], number: int, length: int, rows: int = ROWS) -> dict:
    """What the model, whose pieces are the windows' at this number, makes of their words."""
    nats, right, pieces = score(model, windows, number, length, rows)
    return {
        "nats_per_word": float(nats.mean()),
        "accuracy": float(right.mean()),
        "pieces_per_word": float(pieces.mean()),
        "parameters": metrics.count(model.params, model.vocabulary.size),
    }


def score(
    model, windows: list[words.Window], number: int, length: int, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[W] nats of each word, bool[W] whether it is right, int64[W] its pieces."""
    total = sum(len(window.words) for window in windows)
    nats, wrong, pieces = np.zeros(total), np.zeros(total), np.zeros(total, np.int64)
    function = jax.jit(partial(predict, model.objective))
    for arrays, owner in make_batches(windows, number, length, rows, model.vocabulary):
        costs, hits = map(np.asarray, function(model.params, arrays))
        used = owner >= 0
        nats += np.bincount(owner[used], costs[used], total)
        wrong += np.bincount(owner[used], ~hits[used], total)
        pieces += np.bincount(owner[used], minlength=total)
    return nats, wrong == 0, pieces


def make_batches(
    windows: list[words.Window], number: int, length: int, rows: int, vocabulary
) -> Iterator[tuple[dict, np.ndarray]]:
    """Batches of one shape; int64[B, P] the word, over all windows, of each masked piece, -1 where there is none."""
    masked = [words.owners(window.pieces[number], window.words) for window in windows]
    predictions = max(int((owners >= 0).sum()) for owners in masked)
    shapes = batches.shapes(rows, length, predictions)
    firsts = np.cumsum([0, *(len(window.words) for window in windows)])
    for start in range(0, len(windows), rows):
        arrays = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
        arrays["tokens"][:] = vocabulary.pad
        arrays["rows"][:] = np.arange(rows)
        owner = np.full((rows, predictions), -1)
        for row, window in enumerate(windows[start : start + rows]):
            owners = masked[start + row]
            fill(arrays, row, window.pieces[number].ids, owners, vocabulary)
            own = owners[owners >= 0]
            owner[row, : len(own)] = firsts[start + row] + own
        yield arrays, owner


def fill(arrays: dict, row: int, ids: np.ndarray, owners: np.ndarray, vocabulary) -> None:
    """[CLS] pieces [SEP] as a row of a batch, with [MASK] for every piece of a word."""
    places, size = np.flatnonzero(owners >= 0), len(ids) + 2
    shown = np.where(owners >= 0, vocabulary.mask, ids)
    arrays["tokens"][row, :size] = [vocabulary.cls, *shown, vocabulary.sep]
    arrays["positions"][row, :size] = np.arange(size)
    arrays["sequence_ids"][row, :size] = 1
    arrays["masked_positions"][row, : len(places)] = places + 1
    arrays["masked_targets"][row, : len(places)] = ids[places]
    arrays["masked_weights"][row, : len(places)] = 1


def predict(objective, params, batch):
    """(float32[B, P] nats, bool[B, P] hits) of the masked pieces."""
    logits, targets = objective.outputs(params, batch)["mlm_logits"], batch["masked_targets"]
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen, logits.argmax(axis=-1) == targets


# --- For people -----------------------------------------------------------------------------------

COLUMNS = {
    "nats/word": ("nats_per_word", "{:.4f}"),
    "accuracy": ("accuracy", "{:.4f}"),
    "pieces/word": ("pieces_per_word", "{:.3f}"),
    "bits/character": ("bits_per_character", "{:.4f}"),
    "unknown": ("unknown", "{:,}"),
    "parameters": ("parameters", "{:,}"),
}


def describe(values: dict) -> str:
    """A table, one line a model."""
    width = max(len(model["model"]) for model in values["models"])
    lines = [
        f"{values['words']:,} words ({values['characters']:,} characters) masked in {values['windows']:,} windows of"
        f" {values['documents']:,} held-out documents; entropy of these words {values['word_entropy']:.4f} nats",
        "  ".join([" " * width, *COLUMNS]),
    ]
    for model in values["models"]:
        cells = (
            form.format(model[key]).rjust(len(title)) for title, (key, form) in COLUMNS.items()
        )
        note = "" if model["held_out"] else "  may have been trained on this text"
        lines.append("  ".join([model["model"].ljust(width), *cells]) + note)
    return "\n".join(lines)
