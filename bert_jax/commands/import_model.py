"""`import`: creates a run at step 0 from a model of another program, to continue pretraining."""

from pathlib import Path

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.checkpoints import writer
from bert_jax.convert import external_model, open_model, vocabulary_extension
from bert_jax.data import download
from bert_jax.errors import BadInput
from bert_jax.models import base as models
from bert_jax.runs import continuation, run_info, workdir
from bert_jax.tokenizers import wordpiece

OPTIONS = [
    cli.path("--source", "a model of another program", **cli.REQUIRED),
    cli.WORKDIR,
    cli.option("--config", "config of the new run; default: base"),
    cli.path("--add-words", "words to add, one a line", metavar="FILE"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    settings = configs.load(options.config) if options.config else None
    values = import_model(options.source, options.workdir, settings, overrides, options.add_words)
    return cli.show(options, values, describe(values))


def import_model(source: Path, directory, config=None, overrides=(), words=None) -> dict:
    """Creates the workdir `directory`, which may be an address; returns the content of its run.json.

    config: a ConfigDict for the new run; its model and tokenizer are replaced by those of the source. None is base with
    a store in the workdir.
    words: path of a file of words to add to the vocabulary.

    Raises BadInput before anything is written.
    """
    workdir.check_new(directory)
    for key in overrides:
        if key.startswith("tokenizer."):
            raise BadInput(f"--config.{key}: cannot be set, the tokenizer is that of the source")
    model_source = open_model.read_source(
        Path(source), model=open_model.model_name(config, overrides)
    )
    added_words = {}
    if words:
        model_source, added_words = vocabulary_extension.extend(model_source, words)
    settings = external_model.to_config(model_source, config, overrides)
    if settings.init_from:
        raise BadInput(f"config.init_from={settings.init_from}: the run starts from --source")
    model = open_model.open_source(model_source, settings)
    base = download.absolute(str(directory))
    settings = settings.copy_and_resolve_references()
    settings.tokenizer.path = f"{base}/tokenizer/{model.tokenizer.file}"
    if model.tokenizer.kind == wordpiece.KIND:
        settings.tokenizer.lowercase = model.tokenizer.lowercase
        settings.tokenizer.keep_accents = model.tokenizer.keep_accents
    if config is None:
        settings.store = f"{base}/store"
    values = model.info | {
        "run": workdir.new_run_id(),
        "tokenizer": model.tokenizer.fingerprint,
        "config": continuation.digest(settings),
        **models.parameters(model.config, model.params, model.vocabulary.size),
        "versions": run_info.versions(),
    }
    if added_words:
        values["imported"]["added_words"] = added_words
    with workdir.created(directory) as run:
        writer.save_params(run.checkpoints, model.params, values["run"])
        configs.save(settings, run.directory / "config.json")
        model.tokenizer.save(run.directory / "tokenizer")
        workdir.write_info(run.directory, values)
        workdir.write_status(run.directory, "imported", step=0, steps=configs.total_steps(settings))
    # `config` in run.json is a digest; here it is the file to continue with.
    return values | {"workdir": str(directory), "config": f"{directory}/config.json"}


def describe(values: dict) -> str:
    """Returns text: what was imported, what was initialized, and the command to continue with."""
    imported = values["imported"]
    lines = [f"{imported['source']} ({imported['format']}): {values['parameters']:,} parameters"]
    if values["fresh"]:
        lines.append(f"not in the source, initialized randomly: {', '.join(values['fresh'])}")
    if imported["unused"]:
        lines.append(f"not used by the objective: {', '.join(imported['unused'])}")
    for kind, count in imported.get("added_words", {}).items():
        lines.append(f"words {kind}: {count}")
    command = f"bert-jax pretrain --config {values['config']} --workdir {values['workdir']}"
    lines.append(f"to continue: {command}")
    return "\n".join(lines)
