"""Models of any vocabularies on the same held-out text: the same words masked for all of them.

A word is a run of letters, digits and "_", and is cut into pieces by itself, as is what stands between two words. All
pieces of a chosen word are masked, so the number of [MASK]s tells a model into how many pieces a word was cut.

B rows of windows, L length, P masked pieces a row, W chosen words over all windows.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import config as configs
from bert_jax import prng
from bert_jax.convert import load_model
from bert_jax.data import batch as batches
from bert_jax.errors import BadInput
from bert_jax.models import bert

RATE = 0.15  # share of the words that are chosen
PART = re.compile(r"\w+|[^\w\s]+")
ROWS = 32  # windows at a time; their logits are held, and the padding of the last ones costs little


class Window(NamedTuple):
    """A stretch of a document in parts: words, and what stands between them but white space."""

    document: int
    parts: list[str]
    pieces: list[list[list[int]]]  # of each part: its ids in every vocabulary
    chosen: list[int]  # the parts that are masked, by their places


def evaluate(directories: list[Path], config, log=print) -> dict:
    """{words, windows, documents, characters, word_entropy, models: [...]} on the held-out text of a config.

    Of each model {model, nats_per_word, accuracy, pieces_per_word, bits_per_character, unknown, held_out, parameters}.
    All words weigh alike. A word's nats are the sum over its pieces, each guessed without the others; it is right if
    every piece is. Words that some vocabulary has an [UNK] for are left out for all; `unknown` counts them. `held_out`
    is whether the text is known to be new to the model: stores of other vocabularies hold out other documents.
    `word_entropy` is that of the words' own frequencies, in nats.
    """
    from bert_jax.data import prepare

    # One dtype for all: what is compared is the models.
    models = [load_model.open_model(directory, ["dtype=float32"]) for directory in directories]
    for directory, model in zip(directories, models, strict=True):
        load_model.check_masks(directory, model)
    positions = [model.config.model.max_length for model in models]
    length = min(configs.phases(config)[-1].length, *positions)
    prepare.prepare(config, log)
    store = prepare.open_or_refuse(config)
    windows, unknown = read(config, store, [model.tokenizer for model in models], length)
    words = [window.parts[place] for window in windows for place in window.chosen]
    if not words:
        raise BadInput(f"{store.path}: no held-out word is known to every model")
    shares = np.array([*Counter(words).values()]) / len(words)
    characters = sum(map(len, words))

    def measured(number: int) -> dict:
        directory, model = directories[number], models[number]
        log(f"{directory}: {len(words):,} words in {len(windows):,} windows")
        nats, right, pieces = score(model, windows, number, length)
        # A run on this very store from the start never saw what is held out there.
        own = model.info.get("store_fingerprint") == store.fingerprint
        return {
            "model": str(directory),
            "nats_per_word": float(nats.mean()),
            "accuracy": float(right.mean()),
            "pieces_per_word": float(pieces.mean()),
            "bits_per_character": float(nats.sum() / math.log(2) / characters),
            "unknown": int(unknown[number]),
            "parameters": bert.count(model.params, model.vocabulary.size),
            "held_out": own and "imported" not in model.info,
        }

    return {
        "words": len(words),
        "windows": len(windows),
        "documents": len({window.document for window in windows}),
        "characters": characters,
        "word_entropy": float(-(shares * np.log(shares)).sum()),
        "models": [measured(number) for number in range(len(models))],
    }


# --- The text -------------------------------------------------------------------------------------


def read(config, store, tokenizers: list, length: int) -> tuple[list[Window], np.ndarray]:
    """The first windows of the held-out text, config.evaluate.rows at most; how many words each vocabulary lacked."""
    from bert_jax.data import heldout_text

    with closing(heldout_text.documents(config, store)) as documents:
        found = [*islice(windows(documents, tokenizers, length - 2), config.evaluate.rows)]
    unknown = np.zeros(len(tokenizers), np.int64)
    for number, window in enumerate(found):
        for place in choose(config.seed, number, window.parts):
            cuts = zip(window.pieces[place], tokenizers, strict=True)
            lacks = np.array([not ids or tokenizer.unk in ids for ids, tokenizer in cuts])
            unknown += lacks
            if not lacks.any():
                window.chosen.append(place)
    return found, unknown


def windows(documents: Iterable[list[str]], tokenizers: list, limit: int) -> Iterator[Window]:
    """The windows of documents (lists of sentences), each of at most `limit` pieces in every vocabulary.

    Parts of more pieces are left out.
    """
    cut = lru_cache(1 << 18)(lambda part, glued: [t.encode_part(part, glued) for t in tokenizers])
    for document, sentences in enumerate(documents):
        window, sizes = Window(document, [], [], []), 0
        text = f" {' '.join(sentences)}"
        for found in PART.finditer(text):
            pieces = cut(found[0], not text[found.start() - 1].isspace())
            more = np.array([len(ids) for ids in pieces])
            if more.max() > limit:
                continue
            if max(sizes + more) > limit:
                yield window
                window, sizes = Window(document, [], [], []), 0
            window.parts.append(found[0])
            window.pieces.append(pieces)
            sizes = sizes + more
        if window.parts:
            yield window


def choose(seed: int, window: int, parts: list[str]) -> list[int]:
    """The places of about RATE of the words of a window."""
    key = np.full(len(parts), prng.key(seed, prng.PURPOSE["words"], window))
    bits = prng.fold(key, np.arange(len(parts), dtype=np.uint32))
    drawn = np.flatnonzero(bits < RATE * 2**32).tolist()
    return [place for place in drawn if re.match(r"\w", parts[place])]


# --- One model ------------------------------------------------------------------------------------


def score(model, windows: list[Window], number: int, length: int) -> tuple[np.ndarray, ...]:
    """float64[W] nats of each word, bool[W] whether it is right, int64[W] its pieces.

    The windows have the pieces of the model's vocabulary at `number`.
    """
    vocabulary, function = model.vocabulary, jax.jit(partial(predict_masked, model.objective))
    rows = [hide(window, number, vocabulary.mask) for window in windows]
    predictions = max(ids.count(vocabulary.mask) for ids in rows)
    nats, right = [], []
    for start in range(0, len(windows), ROWS):
        shapes = batches.shapes(ROWS, length, predictions)
        batch = batches.of_texts(rows[start : start + ROWS], shapes, vocabulary)
        used = batch["masked_weights"] > 0
        words = chain(*(masked(window, number) for window in windows[start : start + ROWS]))
        batch["masked_targets"][used] = [*chain(*words)]
        costs, hits = map(np.asarray, function(model.params, batch))
        nats.append(costs[used].astype(np.float64))
        right.append(hits[used])
    sizes = np.array([len(ids) for window in windows for ids in masked(window, number)])
    starts = np.cumsum(sizes) - sizes
    nats, right = np.concatenate(nats), np.concatenate(right)
    return np.add.reduceat(nats, starts), np.logical_and.reduceat(right, starts), sizes


def masked(window: Window, number: int) -> list[list[int]]:
    """The pieces of each chosen word."""
    return [window.pieces[place][number] for place in window.chosen]


def hide(window: Window, number: int, mask: int) -> list[int]:
    """The pieces of a window, with [MASK] for every piece of a chosen word."""
    cuts = [ids[number] for ids in window.pieces]
    for place in window.chosen:
        cuts[place] = [mask] * len(cuts[place])
    return [*chain(*cuts)]


def predict_masked(objective, params, batch):
    """(float32[B, P] nats, bool[B, P] hits) of the masked pieces."""
    logits, targets = objective.outputs(params, batch)["mlm_logits"], batch["masked_targets"]
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen, logits.argmax(axis=-1) == targets


def describe(values: dict) -> str:
    """For people: a table, one line a model."""
    names = [key for key in values["models"][0] if key not in ("model", "held_out")]
    width = max(len(model["model"]) for model in values["models"])
    lines = [
        f"{values['words']:,} words ({values['characters']:,} characters) masked in"
        f" {values['windows']:,} windows of {values['documents']:,} held-out documents; entropy of"
        f" these words {values['word_entropy']:.4f} nats",
        "  ".join([" " * width, *names]),
    ]
    for model in values["models"]:
        kinds = (",d" if isinstance(model[name], int) else ".4f" for name in names)
        cells = (f"{model[n]:{len(n)}{kind}}" for n, kind in zip(names, kinds, strict=True))
        note = "" if model["held_out"] else "  may have been trained on this text"
        lines.append("  ".join([model["model"].ljust(width), *cells]) + note)
    return "\n".join(lines)
