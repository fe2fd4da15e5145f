"""`export`: writes a run's newest checkpoint as a Hugging Face directory, or as a checkpoint of Google's BERT."""

from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.utils import validate_repo_id

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.convert import model_card, names, open_model, to_huggingface
from bert_jax.errors import BadInput, Unfinished, one_line
from bert_jax.layers import counts
from bert_jax.objectives import replaced_tokens
from bert_jax.runs import open_run, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.storage.atomic import check_free, new_directory

OPTIONS = [
    cli.location("--model --workdir", "directory or address of a run", **cli.REQUIRED),
    cli.path("--output", "directory to write; must not exist yet", **cli.REQUIRED),
    cli.option("--format", "default: %(default)s", choices=names.FORMATS, default=names.FORMATS[0]),
    cli.option("--license", "of the weights, such as apache-2.0", default="", metavar="ID"),
    cli.option("--language", "of the text, such as en", default="", metavar="CODE"),
    cli.option("--push", "OWNER/NAME on the hub, to upload to; if new, private", metavar="NAME"),
    cli.option("--generator", "of an ELECTRA, instead of its discriminator", action="store_true"),
    cli.AS_JSON,
]
# Keys that choose the checkpoints; others of the run's config are facts about it.
CHOICES = ("checkpoint.average", "evaluate.patience")


def run(options, overrides) -> int:
    cli.refuse_overrides([text for text in overrides if text.partition("=")[0] not in CHOICES])
    about = model_card.About(options.license, options.language, options.push or "")
    if options.push:
        check_push(options.push)
    with workdir.opened_at(options.model) as source:
        choices = options.format, about, overrides, options.generator
        values = export(source, options.output, *choices)
    values["pushed"] = push(options.output, options.push) if options.push else None
    return cli.show(options, values, describe(values))


def check_push(name: str) -> None:
    """Raises BadInput for a name that the hub does not accept, or without a token."""
    try:
        validate_repo_id(name)
        _, _ = name.split("/")
    except ValueError as error:
        raise BadInput(f"--push {name}: expected OWNER/NAME ({one_line(error)})") from None
    if not get_token():
        raise BadInput(f"--push {name}: no token; run hf auth login, or set HF_TOKEN")


def push(directory: Path, name: str) -> str:
    """Uploads an exported directory as a model of the hub; returns its address. The library finds the token.

    Raises Unfinished, with the command that tries it again; the directory stays.
    """
    try:
        address = HfApi().create_repo(name, private=True, exist_ok=True)
        HfApi().upload_folder(repo_id=address.repo_id, folder_path=directory)
        return str(address)
    except Exception as error:  # the library and its HTTP client raise many types
        again = f"to try again: hf upload --private {name} {directory}"
        raise Unfinished(f"--push {name}: {one_line(error, 300)}; {again}") from None


def export(
    source: Workdir,
    output: Path,
    form=names.FORMATS[0],
    about=None,
    overrides=(),
    generator=False,
) -> dict:
    """Writes the output; returns {output, files, bytes, parameters, step, positions}. A failure leaves no files.

    form: huggingface or google.
    about: fields of the model card, a model_card.About.
    overrides: of CHOICES.
    generator: whether the generator is written, see objectives/replaced_tokens.py.
    """
    about = about or model_card.About()
    if form == "google" and (about.license or about.language):
        raise BadInput(f"--format {form}: has no model card for --license or --language")
    check_free(output, "--output")
    run = open_run.open_run(source, overrides)
    if generator:
        run = generator_of(run, source.name)
    check_run(run, source.name, form)
    # Heads that import initialized and no step has trained are not exported.
    named = {each.path for each in names.parameters(run.config.model, run.config.objective.name)}
    params = {path: array for path, array in open_model.trained(run).items() if path in named}
    parameters = counts.count(params, run.vocabulary.size)
    positions = open_run.trained_positions(run)
    model = run.config, run.vocabulary, run.tokenizer, params
    with new_directory(output, "--output") as directory:
        if form == "google":
            from bert_jax.convert import tensorflow_checkpoint

            tensorflow_checkpoint.write(directory, *model)
        else:
            parts = to_huggingface.write(directory, *model, positions)
            about = about._replace(
                # As typed, so that the card's code runs in the same directory; absolute paths are of one machine.
                path=output.name if output.is_absolute() else str(output),
                average=run.config.checkpoint.average,
                parameters=parameters,
                positions=positions,
            )
            model_card.write(directory, run, source.directory, parts, about)
        sizes = {path.name: path.stat().st_size for path in sorted(directory.iterdir())}
    return {
        "output": str(output),
        "files": list(sizes),
        "bytes": sum(sizes.values()),
        "parameters": parameters,
        "step": run.step,
        "positions": [positions, run.config.model.max_length],
    }


def generator_of(run: open_run.OpenModel, name: str) -> open_run.OpenModel:
    """Returns the generator of a run as a model of its own. Raises BadInput if there is none that is trained."""
    objective = run.config.objective.name
    if objective != "replaced_tokens" or not run.step:
        raise BadInput(f"{name}: --generator: none is trained, objective.name={objective!r}")
    config = replaced_tokens.generator_config(run.config)
    return run._replace(config=config, params=replaced_tokens.generator_params(run.params))


def check_run(run, name: str, form: str) -> None:
    """Raises BadInput for a model or an objective that the format does not have."""
    values = configs.flatten(configs.resolve_model(run.config))
    for key, supported in names.exportable(form, run.config).items():
        if values.get(key, supported[0]) not in supported:
            choices = " or ".join(map(str, supported))
            raise BadInput(f"{name}: {key}={values[key]}: --format {form} has only {choices}")


def describe(values: dict) -> str:
    trained, positions = values["positions"]
    text = (
        f"{values['output']}: {', '.join(values['files'])}; {values['parameters']:,} parameters of"
        f" step {values['step']:,}, {values['bytes'] / 1e6:,.1f} MB"
    )
    if trained < positions:
        text += f"; trained on rows of up to {trained} of its {positions} positions"
    if values["pushed"]:
        text += f"; pushed to {values['pushed']}"
    return text
