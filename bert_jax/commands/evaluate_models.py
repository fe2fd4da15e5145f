"""Evaluates models with any vocabularies on the same held-out text, with the same words masked for all of them.

W chosen words in all windows; see objectives/word_windows.py.
"""

from contextlib import closing
from pathlib import Path

from bert_jax import config as configs
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.models import counts
from bert_jax.objectives import word_windows


def evaluate(directories: list[Path], config, log=print) -> dict:
    """Returns {words, windows, documents, characters, word_entropy, models: [...]} on the held-out text of a config.

    Each model has {model, nats_per_word, accuracy, pieces_per_word, bits_per_character, unknown, held_out, parameters}.
    All words have the same weight. The nats of a word are the sum over its pieces, which are predicted independently; a
    word is correct if all its pieces are. Words with an [UNK] in any vocabulary are skipped for all models; `unknown`
    counts them. `held_out` is whether the model surely was not trained on the text: it always trained on this store, as
    other stores may hold out other documents. `word_entropy` is the entropy of the word frequencies, in nats.
    """
    from bert_jax.data import heldout_text, prepare

    # The same dtype for all models, so that it does not affect the comparison.
    models = [load_model.open_model(directory, ["dtype=float32"]) for directory in directories]
    for directory, model in zip(directories, models, strict=True):
        load_model.check_masks(directory, model)
    positions = [model.config.model.max_length for model in models]
    length = min(configs.phases(config)[-1].length, *positions)
    store = prepare.open_or_prepare(config, log)
    with closing(heldout_text.documents(config, store)) as documents:
        tokenizers = [model.tokenizer for model in models]
        windows, unknown = word_windows.choose_words(
            documents, tokenizers, length - 2, config.seed, config.evaluate.rows
        )
    values = word_windows.summary(windows)
    if not values["words"]:
        raise BadInput(f"{store.path}: no held-out word is in all vocabularies")
    results = []
    for number, (directory, model) in enumerate(zip(directories, models, strict=True)):
        log(f"{directory}: evaluating {values['words']:,} words in {values['windows']:,} windows")
        # A run that always trained on this store never saw its held-out documents.
        same_store = model.info.get("store_fingerprint") == store.fingerprint
        results.append(
            {
                "model": str(directory),
                **word_windows.evaluate(model, windows, number, length),
                "unknown": int(unknown[number]),
                "parameters": counts.count(model.params, model.vocabulary.size),
                "held_out": same_store and "imported" not in model.info,
            }
        )
    return values | {"models": results}


def describe(values: dict) -> str:
    """Returns a table as text, one line for each model."""
    names = [key for key in values["models"][0] if key not in ("model", "held_out")]
    width = max(len(model["model"]) for model in values["models"])
    lines = [
        f"{values['words']:,} words ({values['characters']:,} characters) masked in"
        f" {values['windows']:,} windows of {values['documents']:,} held-out documents; entropy of"
        f" the words {values['word_entropy']:.4f} nats",
        "  ".join([" " * width, *names]),
    ]
    for model in values["models"]:
        kinds = (",d" if isinstance(model[name], int) else ".4f" for name in names)
        cells = (f"{model[n]:{len(n)}{kind}}" for n, kind in zip(names, kinds, strict=True))
        note = "" if model["held_out"] else "  may have been trained on this text"
        lines.append("  ".join([model["model"].ljust(width), *cells]) + note)
    return "\n".join(lines)
