"""A model that others made becomes a run at step 0, to continue or to fine-tune."""

from pathlib import Path

from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.checkpoints import writer
from bert_jax.convert import external_model, load_model, vocabulary_extension
from bert_jax.data import download
from bert_jax.errors import BadInput
from bert_jax.models import bert
from bert_jax.runs import run_info, workdir
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.tokenizer import Tokenizer

OPTIONS = [
    cli.option("--source", "directory of a model of another program", type=cli.place, **cli.NEEDED),
    cli.RUN,
    cli.option("--config", "config of the run to come; base where it is left out"),
    cli.option("--add-words", "new words, one a line", type=cli.place, metavar="FILE"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    settings = configs.load(options.config) if options.config else None
    values = import_model(options.source, options.workdir, settings, overrides, options.add_words)
    return cli.show(options, values, describe(values))


def import_model(
    place: Path,
    directory: Path | str,
    config: ConfigDict | None = None,
    overrides: list[str] = (),
    words: Path | None = None,
) -> dict:
    """Makes the workdir `directory`, which may be an address; returns what is in its run.json, with what was left out
    and what starts fresh.

    config: of the run to come; its model is that of the source, its tokenizer too. None is base, with a store in the
    workdir. words: a file of words that the vocabulary gets. Nothing is written before all is known to be right.
    """
    workdir.check_new(directory)
    refused = next((key for key in overrides if key.startswith("tokenizer.")), None)
    if refused:
        raise BadInput(f"--config.{refused}: the tokenizer is that of the source")
    found, added = load_model.read_source(Path(place)), {}
    if words:
        found, added = vocabulary_extension.extend(found, words)
    settings = external_model.to_config(found, config, overrides)
    model = load_model.open_source(found, settings)
    settings = run_config(settings, model.tokenizer, directory, own_store=config is None)
    values = model.info | {
        "run": workdir.new_run(),
        "tokenizer": model.tokenizer.fingerprint,
        "config": configs.digest(settings),
        **bert.parameters(model.params, model.vocabulary.size),
        "versions": run_info.versions(),
    }
    if added:
        values["imported"]["added_words"] = added
    if model.tokenizer.kind == wordpiece.KIND:
        # A vocab.txt by itself does not say.
        values["imported"]["lowercase"] = model.tokenizer.lowercase
    with workdir.created(directory) as run:
        writer.save_params(run.checkpoints, model.params, values["run"])
        configs.save(settings, run.directory / "config.json")
        model.tokenizer.save(run.directory / "tokenizer")
        workdir.write_json(run.directory / "run.json", values)
        workdir.write_status(run.directory, "imported", step=0, steps=configs.total_steps(settings))
    # `config` of run.json is a digest; here it is the file to go on with.
    return values | {"workdir": str(directory), "config": f"{directory}/config.json"}


def run_config(settings: ConfigDict, words: Tokenizer, directory: Path | str, own_store: bool):
    """The config of the run to come: its tokenizer is the copy in the workdir."""
    place = download.absolute(str(directory))
    settings = settings.copy_and_resolve_references()
    with settings.unlocked():
        settings.tokenizer.path = f"{place}/tokenizer/{words.file}"
        if words.kind == wordpiece.KIND:
            settings.tokenizer.lowercase = words.lowercase
        if own_store:
            settings.store = f"{place}/store"
    return settings


def describe(values: dict) -> str:
    """What was imported, what is not the source's, and how to go on."""
    imported = values["imported"]
    lines = [f"{imported['source']} ({imported['format']}): {values['parameters']:,} parameters"]
    if values["fresh"]:
        lines.append(f"not in the source, starts fresh: {', '.join(values['fresh'])}")
    if imported["unused"]:
        lines.append(f"the objective has no place for: {', '.join(imported['unused'])}")
    lines += [f"words {what}: {n}" for what, n in imported.get("added_words", {}).items()]
    lowercase = imported.get("lowercase")
    if lowercase is not None:
        lines.append(f"words are {'lower-cased' if lowercase else 'cased'}")
    go_on = f"bert-jax pretrain --config {values['config']} --workdir {values['workdir']}"
    return "\n".join([*lines, f"to go on: {go_on}"])
