"""Evaluates models on texts: causal models on the same text, and translations against references."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from bert_jax.convert import open_model
from bert_jax.data.sources import tables
from bert_jax.data.sources.text import has_visible
from bert_jax.errors import BadInput
from bert_jax.inference import perplexity, predict
from bert_jax.layers import counts
from bert_jax.runs import jax_setup
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_or_prepare
from bert_jax.tasks.translation import scores


def evaluate_models(
    directories: list[Path],
    config,
    log=print,
    file: Path | None = None,
    stride: int = 0,
) -> dict:
    """Evaluates causal models with any vocabularies on the same text: that of a file, or the held-out text of a config.

    Returns the numbers of the text, and as `models` [{model, parameters, ...}], see `perplexity.evaluate`. With a
    config's text, `held_out` is whether the model surely was not trained on it: it always trained on this store, as
    other stores may hold out other documents.

    Raises BadInput for other models.
    """
    from bert_jax.data.preparation import heldout_text

    # The same dtype for all models, so that it does not affect the comparison.
    models = [open_model.open_model(directory, ["dtype=float32"]) for directory in directories]
    jax_setup.start(models[0].config)
    pairs = [*zip(directories, models, strict=True)]
    for directory, model in pairs:
        open_model.check_can(directory, model, "continue")
        perplexity.check_stride(directory, model, stride)
    if file:
        texts = [*read_documents(file)]
    else:
        store = open_or_prepare(config, log)
        with closing(heldout_text.documents(config, store)) as documents:
            chosen = islice(documents, config.evaluate.rows)
            texts = [" ".join(sentences) for sentences in chosen]
    rows = []
    for directory, model in pairs:
        result = perplexity.evaluate(model, texts, stride)
        result["parameters"] = counts.count(model.params, model.vocabulary.size)
        if not file:
            # A run that always trained on this store never saw its held-out documents.
            is_same_store = model.info.get("store_fingerprint") == store.fingerprint
            result["held_out"] = is_same_store and "imported" not in model.info
        rows.append({"model": str(directory)} | result)
    return perplexity.count(texts) | {"models": rows}


def read_documents(path: Path) -> Iterator[str]:
    """Yields the documents of a file: `text` of each row of a table, or else all of its text.

    Raises BadInput for an empty one.
    """
    if tables.suffix_of(path):
        documents = tables.read_texts(path)
    else:
        documents = [(path, tables.read_text(path))]
    for location, text in documents:
        if not has_visible(text):
            raise BadInput(f"--input {location}: has no text")
        yield text


def evaluate_translations(
    name,
    file: Path,
    references: list[Path],
    overrides,
    search: dict,
) -> dict:
    """Returns the scores of the translations of a file's sources against one or several references, and their
    signatures; see tasks/translation/scores.py.

    Raises BadInput for a reference with another number of lines.
    """
    model = predict.open_with_search(name, overrides, search)
    open_model.check_can(name, model, "translate")
    tasks.check_scores(model.config)
    sources = predict.read_examples(model, file)
    translations = []
    for path in references:
        texts = [text for _, text in tables.read_texts(path, model.config.task.text[1])]
        if len(texts) != len(sources):
            sizes = f"{file}: {len(sources):,} texts, {path}: {len(texts):,} texts"
            raise BadInput(f"--reference: {sizes}; expected the same number")
        translations.append(texts)
    results, _ = predict.predict_examples(model, sources)
    return scores.compute(model.config, scores.NAMES, results, translations)
