"""Writes a run's newest checkpoint as others read it: a Hugging Face directory or Google's TensorFlow checkpoint."""

import re
import time
from pathlib import Path

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.convert import load_model, model_card, to_huggingface
from bert_jax.errors import BadInput
from bert_jax.models import bert
from bert_jax.runs import workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.storage.atomic import check_free, new_directory

FORMATS = ("huggingface", "google")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what the hub takes
OPTIONS = [
    cli.RUN,
    cli.option(
        "--output", "directory to write; may not be there yet", type=cli.place, **cli.NEEDED
    ),
    cli.option("--format", "default: %(default)s", choices=FORMATS, default=FORMATS[0]),
    cli.option("--name", "of the model, in its card; default: the run's", default=""),
    cli.option("--license", "of the weights, as apache-2.0", default="", metavar="ID"),
    cli.option("--data-license", "of the text, as cc-by-sa-4.0", default="", metavar="ID"),
    cli.option("--language", "of the text, as en", default="", metavar="CODE"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse(overrides)
    named = options.name, options.license, options.data_license, options.language
    about = model_card.About(*named)
    with workdir.opened(options.workdir) as source:
        values = export(source, options.output, options.format, about)
    return cli.show(options, values, describe(values))


def export(
    source: Workdir,
    output: Path,
    form: str = "huggingface",
    about: model_card.About | None = None,
) -> dict:
    """{output, files, bytes, parameters, step, seconds}. Nothing is left behind where it fails.

    form: huggingface or google. about: for the model card.
    """
    started, about = time.monotonic(), about or model_card.About()
    if form == "google" and any(about):
        raise BadInput(f"--format {form}: a TensorFlow checkpoint has no model card to fill")
    if about.name and not NAME.fullmatch(about.name):
        raise BadInput(f"--name {about.name}: expected letters, digits, '.', '_' and '-'")
    check_free(output, "--output")
    run = load_model.open_run(source, on_device=form == "google")
    check_run(run, source.name)
    # A head that an import has made up, and that nothing has trained since, is nobody's.
    params = without(run.params, load_model.fresh(run))
    parameters = bert.count(params, run.vocabulary.size)
    model = run.config, run.vocabulary, run.tokenizer, params
    with new_directory(output, "--output") as place:
        if form == "google":
            from bert_jax.convert import tensorflow_checkpoint

            tensorflow_checkpoint.write(place, *model)
        else:
            parts = to_huggingface.write(place, *model)
            # As it was typed, so that what is pasted runs where this ran; whole paths are of one machine.
            path = output.name if output.is_absolute() else str(output)
            about = about._replace(path=path, parameters=parameters)
            model_card.write(place, run, source.directory, parts, about)
        sizes = {path.name: path.stat().st_size for path in sorted(place.iterdir())}
    return {
        "output": str(output),
        "files": list(sizes),
        "bytes": sum(sizes.values()),
        "parameters": parameters,
        "step": run.step,
        "seconds": time.monotonic() - started,
    }


def without(params: dict, parts: list[str]) -> dict:
    """The parameters without those of some parts, of mlm, pair and pooler."""
    kept = {name: tree for name, tree in params.items() if name not in parts}
    encoder = {name: tree for name, tree in params["encoder"].items() if name not in parts}
    return kept | {"encoder": encoder}


def check_run(run, name: str) -> None:
    """Raises BadInput where the other side has no name for the model."""
    for key, only in (("model.name", "bert"), ("objective.name", "mlm")):
        value = configs.lookup(run.config, key)
        if value != only:
            raise BadInput(f"{name}: {key}={value}: only {only} has a name elsewhere")


def describe(values: dict) -> str:
    return (
        f"{values['output']}: {', '.join(values['files'])}; {values['parameters']:,} parameters of step "
        f"{values['step']:,}, {values['bytes'] / 1e6:,.1f} MB in {values['seconds']:.1f} s"
    )
