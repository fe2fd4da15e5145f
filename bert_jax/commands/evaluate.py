"""`evaluate`: held-out metrics of a run's newest checkpoint, of several models on the same text, or of translations."""

from contextlib import closing
from pathlib import Path

import jax

from bert_jax import cli, evaluate
from bert_jax import config as configs
from bert_jax.commands import predict
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.inference import word_windows
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.parallel import initial
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.processes import Cluster, joined
from bert_jax.runs import metrics, run_info, workdir
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_feed, open_or_prepare
from bert_jax.tasks.labelled import examples, tables

OPTIONS = [
    cli.place("--model --workdir", "runs or models", action="append", **cli.REQUIRED),
    cli.option("--config", "config of the held-out text; default: that of the run"),
    cli.path("--input", "file of a source a line, to translate and to compare with --reference"),
    cli.path("--reference", "file of their translations"),
    *predict.SEARCH,
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    search = predict.search_keys(options)
    is_translated = bool(options.input and options.reference) and not options.config
    if not is_translated and (options.input or options.reference or search):
        raise BadInput("evaluate: expected --input with --reference, and no --config")
    if options.config:
        config = cli.load_config(options, overrides)
        values = evaluate_models(options.model, config, cli.log_progress)
        return cli.show(options, values, word_windows.describe(values))
    if len(options.model) > 1:
        raise BadInput("evaluate: several models need --config, whose text they are evaluated on")
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


def evaluate_translations(name, file: Path, reference: Path, overrides, search: dict) -> dict:
    """Returns the scores of the translations of a file's lines, and their signatures; see tasks/translation/scores.py.

    Raises BadInput for a reference with another number of lines.
    """
    sources = tables.read_lines(file)
    references = tables.read_lines(reference)
    if len(sources) != len(references):
        sizes = f"{file}: {len(sources):,} lines, {reference}: {len(references):,} lines"
        raise BadInput(f"--reference: {sizes}; expected the same number")
    model = predict.open_model(name, overrides, search)
    task = examples.module_of(model.config)
    if not hasattr(task, "score_texts"):
        raise BadInput(f"--reference: {name}: task {model.config.task.name!r} has no translations")
    tasks.check_scores(model.config)
    results, _ = predict.predict_examples(model, task.load_sources(model.config, file))
    return task.score_texts(model.config, [result["prediction"] for result in results], references)


def evaluate_run(name: Path | str, overrides=(), processes: Cluster | None = None) -> dict:
    """Returns metrics of a run's newest checkpoint on the splits that are evaluated, on rows of the phase of this
    checkpoint, as during training. If there are several splits, the names begin with the split's.

    processes: that evaluate together; default: this one alone.
    """
    with workdir.opened(name) as opened:
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


def evaluate_models(directories: list[Path], config, log=print) -> dict:
    """Evaluates models with any vocabularies on the same held-out text, with the same words masked for all of them.

    Returns {words, windows, documents, characters, word_entropy, models: [...]} on the held-out text of a config.

    Each model has {model, nats_per_word, accuracy, pieces_per_word, bits_per_character, unknown, held_out, parameters}.
    All words have the same weight. The nats of a word are the sum over its pieces, which are predicted independently; a
    word is correct if all its pieces are. Words with an [UNK] in any vocabulary are skipped for all models; `unknown`
    counts them. `held_out` is whether the model surely was not trained on the text: it always trained on this store, as
    other stores may hold out other documents. `word_entropy` is the entropy of the word frequencies, in nats.
    """
    from bert_jax.data import heldout_text

    # The same dtype for all models, so that it does not affect the comparison.
    models = [load_model.open_model(directory, ["dtype=float32"]) for directory in directories]
    length = configs.phases(config)[-1].length
    for directory, model in zip(directories, models, strict=True):
        load_model.check_masks(directory, model)
        length = min(length, configs.longest_row(model.config))
    tokenizers = [model.tokenizer for model in models]
    store = open_or_prepare(config, log)
    with closing(heldout_text.documents(config, store)) as documents:
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
        is_same_store = model.info.get("store_fingerprint") == store.fingerprint
        results.append(
            {
                "model": str(directory),
                **word_windows.evaluate(model, windows, number, length, values["characters"]),
                "unknown": int(unknown[number]),
                "parameters": counts.count(model.params, model.vocabulary.size),
                "held_out": is_same_store and "imported" not in model.info,
            }
        )
    return values | {"models": results}
