"""`evaluate`: held-out metrics of a run's newest checkpoint, of models on a text, or of translations."""

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import jax

from bert_jax import cli, evaluate
from bert_jax import config as configs
from bert_jax.commands import predict
from bert_jax.convert import load_model
from bert_jax.data.sources import tables
from bert_jax.data.sources.text import has_visible
from bert_jax.errors import BadInput
from bert_jax.inference import perplexity, token_scores, word_windows
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.parallel import initial
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.processes import Cluster, joined
from bert_jax.runs import metrics, run_info, workdir
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_feed, open_or_prepare
from bert_jax.tasks.labelled import examples
from bert_jax.tasks.translation import scores

OPTIONS = [
    cli.place("--model --workdir", "runs or models", action="append", **cli.REQUIRED),
    cli.option("--config", "config of the held-out text; default: that of the run"),
    cli.path(
        "--input",
        "text to evaluate models on: a document, or a table (.jsonl) with one in `text` of each row;"
        " with --reference, a source a line, to translate",
    ),
    cli.option(
        "--stride",
        "tokens that a window of a causal model scores; default: half a window",
        type=cli.positive,
        default=0,
    ),
    cli.path(
        "--reference",
        "file of translations, a line for each of --input; may be repeated",
        action="append",
    ),
    *predict.SEARCH,
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    search = predict.search_keys(options)
    is_translated = bool(options.input and options.reference) and not options.config
    has_text = bool(options.input) != bool(options.config) and not options.reference
    is_run = not (options.input or options.config or options.reference)
    if not (is_translated or has_text or is_run) or (search and not is_translated):
        hint = "expected --config, --input, or --input with --reference and options of its search"
        raise BadInput(f"evaluate: {hint}")
    if options.stride and not has_text:
        raise BadInput("--stride: needs a text, by --input or --config")
    if has_text:
        for key in overrides:
            # The words that masked models predict are drawn by the seed.
            if options.input and not key.startswith("seed="):
                raise BadInput(
                    f"--config.{key}: with --input there is no config, but --config.seed"
                )
        config = configs.load(options.config or "base", overrides)
        values = evaluate_models(
            options.model, config, cli.log_progress, options.input, options.stride
        )
        module = word_windows if "windows" in values else perplexity
        return cli.show(options, values, module.describe(values))
    if len(options.model) > 1:
        raise BadInput(
            "evaluate: expected one --model with --reference, or without --input and --config"
        )
    if is_translated:
        values = evaluate_translations(
            options.model[0], options.input, options.reference, overrides, search
        )
        return cli.show(options, values, describe(values))
    # The keys of `distributed` are never saved, so those of the command line are all.
    keys = [key for key in overrides if key.startswith("distributed.")]
    with joined(configs.load("base", keys).distributed) as processes:
        values = evaluate_run(options.model[0], overrides, processes)
        if processes.is_main:
            cli.show(options, values, describe(values))
    return 0


def describe(values: dict) -> str:
    """Returns a line for each value."""
    lines = []
    for name, value in values.items():
        number = f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"{name} {number}")
    return "\n".join(lines)


def evaluate_translations(
    name, file: Path, references: list[Path], overrides, search: dict
) -> dict:
    """Returns the scores of the translations of a file's sources against one or several references, and their
    signatures; see tasks/translation/scores.py.

    Raises BadInput for a reference with another number of lines.
    """
    model = predict.open_model(name, overrides, search)
    task = examples.module_of(model.config)
    if not predict.generates(model):
        raise BadInput(f"--reference: {name}: task {model.config.task.name!r} has no translations")
    tasks.check_scores(model.config)
    sources = task.load_sources(model.config, file)
    translations = []
    for path in references:
        texts = [text for _, text in tables.read_texts(path, model.config.task.text[1])]
        if len(texts) != len(sources):
            sizes = f"{file}: {len(sources):,} texts, {path}: {len(texts):,} texts"
            raise BadInput(f"--reference: {sizes}; expected the same number")
        translations.append(texts)
    results, _ = predict.predict_examples(model, sources)
    return scores.compute(model.config, scores.NAMES, results, translations)


def evaluate_run(name: Path | str, overrides=(), processes: Cluster | None = None) -> dict:
    """Returns metrics of a run's newest checkpoint on the splits that are evaluated, on rows of the phase of this
    checkpoint, as during training. If there are several splits, the names begin with the split's.

    processes: that evaluate together; default: this one alone.
    """
    with workdir.opened_at(name) as opened:
        if not load_model.is_run(opened.directory):
            raise BadInput(
                f"{name}: not a run (no run.json); for another model, name a text by --config"
            )
        run = load_model.open_run(opened, overrides)
        tasks.check_scores(run.config)
        data = open_feed(run.config)
        run_info.check_store(opened.directory, run.info, run.step, data)
    processes = processes or Cluster()
    processes.compare({"step": run.step, "config.store: fingerprint": data.fingerprint})
    mesh = meshes.make_mesh(run.config)  # the default one unless overrides set another
    phase = configs.phase_at(run.config, run.step)
    metric = run.objective.headline
    params = jax.tree.map(
        initial.place, run.params, meshes.parameters(run.params, mesh, models.shardings(run.config))
    )
    program = evaluate.program(run.objective, mesh, bool(data.score))
    values = {"step": run.step, "unigram_entropy": data.unigram_entropy}
    with jax.set_mesh(mesh):
        for split in data.splits:
            batches = evaluate.Batches(data, run.config, phase, split, mesh)
            measured = evaluate.measure(program, params, batches)
            headline = metrics.describe_headline(measured, metric, data.unigram_entropy)
            if headline:
                measured["headline"] = headline
            prefix = f"{split}/" if len(data.splits) > 1 else ""
            values |= {prefix + name: value for name, value in measured.items()}
    return values


def evaluate_models(
    directories: list[Path], config, log=print, file: Path | None = None, stride: int = 0
) -> dict:
    """Evaluates masked or causal models with any vocabularies on the same text: that of a file, or the held-out text of
    a config.

    Returns the numbers of the text, and as `models` [{model, parameters, ...}], see `perplexity.evaluate`
    and `evaluate_masked`. With a config's text, `held_out` is whether the model surely was not trained on it: it always
    trained on this store, as other stores may hold out other documents.

    Raises BadInput for masked models beside causal ones: they predict from other context.
    """
    from bert_jax.data import heldout_text

    models, is_causal = open_models(directories)
    if stride and not is_causal:
        raise BadInput(f"--stride: {directories[0]} is a masked LM, which has no windows to slide")
    for directory, model in zip(directories, models, strict=True):
        if is_causal:
            perplexity.check_stride(directory, model, stride)
    if file:
        documents = ([text] for text in read_documents(file))
        number = None
        length = math.inf
    else:
        store = open_or_prepare(config, log)
        documents = heldout_text.documents(config, store)
        number = config.evaluate.rows
        length = configs.phases(config)[-1].length
    with closing(documents):
        if is_causal:
            texts = [" ".join(sentences) for sentences in islice(documents, number)]
            values = perplexity.count(texts)
            results = [perplexity.evaluate(model, texts, stride) for model in models]
        else:
            values, results = evaluate_masked(models, documents, length, number, config.seed)
    rows = []
    for directory, model, result in zip(directories, models, results, strict=True):
        result["parameters"] = counts.count(model.params, model.vocabulary.size)
        if not file:
            # A run that always trained on this store never saw its held-out documents.
            is_same_store = model.info.get("store_fingerprint") == store.fingerprint
            result["held_out"] = is_same_store and "imported" not in model.info
        rows.append({"model": str(directory)} | result)
    return values | {"models": rows}


def open_models(directories: list[Path]) -> tuple[list, bool]:
    """Returns opened models, and whether they are causal. Raises BadInput if only some are."""
    # The same dtype for all models, so that it does not affect the comparison.
    models = [load_model.open_model(directory, ["dtype=float32"]) for directory in directories]
    for directory, model in zip(directories, models, strict=True):
        token_scores.check_language_model(directory, model)
    kinds = [*map(token_scores.is_causal, models)]
    if len(set(kinds)) > 1:
        raise BadInput("--model: numbers of causal and masked models do not compare")
    return models, kinds[0]


def read_documents(path: Path) -> Iterator[str]:
    """Yields the documents of a file: `text` of each row of a table, or else all of its text.

    Raises BadInput for an empty one.
    """
    if tables.suffix_of(path):
        documents = tables.read_texts(path)
    else:
        documents = [(path, tables.read_text(path))]
    for place, text in documents:
        if not has_visible(text):
            raise BadInput(f"--input {place}: has no text")
        yield text


def evaluate_masked(
    models: list, documents: Iterable[list[str]], length: float, number: int | None, seed: int
):
    """Returns {words, windows, documents, characters} of the masked words in windows of documents, and of each masked
    model {nats_per_word, unigram_nats_per_word, accuracy, pieces_per_word, bits_per_character, unknown}.

    All words have the same weight. The nats of a word are the sum over its pieces, which are predicted independently; a
    word is correct if all its pieces are. Words with an [UNK] in any vocabulary are skipped for all models; `unknown`
    counts them. `unigram_nats_per_word` are the nats of a model that knows only how often each piece was in the text
    that the model was trained on; NaN if that is not known.

    length: of the rows, at most. number: of the windows; None: all.
    """
    length = min(length, *(configs.longest_row(model.config) for model in models))
    tokenizers = [model.tokenizer for model in models]
    windows, unknown = word_windows.choose_words(documents, tokenizers, length - 2, seed, number)
    values = word_windows.summary(windows)
    if not values["words"]:
        raise BadInput("evaluate: no masked word of the text is in all vocabularies")
    results = []
    for index, model in enumerate(models):
        result = word_windows.evaluate(model, windows, index, length, values["characters"])
        results.append(result | {"unknown": int(unknown[index])})
    return values, results
