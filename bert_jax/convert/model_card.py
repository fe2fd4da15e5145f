"""Writes the model card, README.md, from the template model_card.md and the files of a run."""

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import ModelCard, ModelCardData

from bert_jax import config as configs
from bert_jax.convert import names
from bert_jax.errors import BadInput, one_line
from bert_jax.runs import continuation, metrics_file, open_run, timing
from bert_jax.tasks import base as tasks

TRAINING = "training.json"  # the run's config; config.json is that of the model
# Keys whose values are paths, and keys that have lines of their own.
PATHS = (
    "corpus.source",
    "corpus.heldout_source",
    *configs.STARTS,
    "task.data",
    "tokenizer.path",
    "compilation_cache",
)
SHOWN = ("dtype", "seed", "store", *PATHS)


class About(NamedTuple):
    """The card's fields that a run does not have."""

    license: str = ""  # of the weights, in the hub's spelling: apache-2.0
    language: str = ""  # in the hub's spelling: en
    repository: str = ""  # OWNER/NAME on the hub, if it is uploaded there
    path: str = ""  # of the exported directory, in the code of the card
    parameters: int = 0  # number of exported parameters
    positions: int = 0  # the longest row that the model was trained on
    average: int = 1  # number of checkpoints whose mean was exported


def write(directory: Path, run, workdir: Path, parts: list[str], about: About) -> None:
    """Writes README.md and the run's config, without the directories of this machine."""
    # The config of all phases; `run.config` has the model's values in one of them.
    model = run.config.model
    config = open_run.read_config(workdir, run.info)
    config.store = f"stores/{Path(config.store).name}"
    values = configs.flatten(config)
    for key in PATHS:
        if key in values:
            configs.assign(config, key, strip_directories(values[key]))
    configs.save(config, directory / TRAINING)
    run = run._replace(config=config)
    try:
        info = read_info(run.info)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{workdir / 'run.json'}: damaged ({one_line(error)})") from None
    ModelCard(body(run, model, info, workdir, parts, about)).save(directory / "README.md")


def read_info(values: dict) -> tuple[str, list[str]]:
    """Returns the name of the model that was imported or that init_from names, '' if none, and lines about devices and
    versions.

    values: the content of run.json.

    Raises AttributeError, KeyError, TypeError or ValueError if it is damaged.
    """
    source = ""
    if "imported" in values:
        source = str(values["imported"]["source"])
    kinds = Counter(values.get("devices", []))
    devices = ", ".join(f"{number} x {kind}" for kind, number in kinds.items())
    packages = values.get("versions", {})
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    return source, [f"- devices: {devices}", f"- versions: {versions}"]


def strip_directories(paths: str) -> str:
    """Returns comma-separated paths with absolute ones reduced to their names."""
    parts = (part.strip() for part in paths.split(","))
    return ",".join(Path(part).name if part.startswith(("/", "~")) else part for part in parts)


def body(
    run, model, info: tuple[str, list[str]], workdir: Path, parts: list[str], about: About
) -> str:
    """Returns the text of README.md.

    model: config.model of what was exported; `run.config` is that of the run.
    info: of `read_info`.
    parts: the parts of names.py that were exported.
    """
    source, machine = info
    name = workdir.absolute().name
    config = run.config
    task = "fill-mask" if "mlm" in parts else "feature-extraction"
    _, task = names.find_class(config, "", task)
    head = ModelCardData(
        license=about.license or "other",
        language=about.language or None,
        library_name="transformers",
        pipeline_tag=task,
        tags=[config.model.name, "bert_jax"],
    )
    origin = []
    data = []
    if source:
        origin.append(f"It started from the weights of `{source}`.")
        data.append(f"- the training data of `{source}` is not recorded here")
    if about.positions < model.max_length:
        positions = f"Positions of longer rows, up to {model.max_length}"
        origin.append(f"{positions}, were never trained.")
    if run.step:
        weights = f"the weights of step {run.step:,}"
        if about.average > 1:
            last = f"step {run.step:,}, which alone is evaluated below"
            weights = f"the mean of {about.average} checkpoints, the last one of {last}"
        origin.append(f"Trained with bert_jax; these are {weights}.")
        sources = config.task.get("data", config.corpus.source)
        data.append(f"- sources: `{sources}`")
    if "label" in parts:
        labels = ", ".join(config.task.labels) or "none"
        origin.append(f"Fine-tuned for {task}; labels: {labels}.")
    if config.objective.name == "replaced_tokens":
        half = "generator" if "mlm" in parts else "discriminator"
        origin.append(f"It is the {half} of a run that trained both.")
    mask = run.tokenizer.spellings.get("mask")
    architecture = names.find_architecture(config.model, config.objective.name)
    family = architecture.title or architecture.prefix
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        about=about,
        name=name,
        head=head.to_yaml(),
        family=f"An {family}" if family[0] in "AEX" else f"A {family}",
        model=model,
        size=run.vocabulary.size,
        kind=run.tokenizer.kind,
        parts=", ".join(parts),
        origin=" ".join(origin),
        usage=usage(config, task, about.repository or about.path, mask),
        data="\n".join(data),
        training="\n".join(training(run, source, machine, workdir)) or "Not trained by bert_jax.",
        evaluated="\n".join(evaluated(run, workdir)) or "Not evaluated.",
        repository=shlex.quote(about.repository or f"USER/{name}"),
        path=shlex.quote(about.path),
    )


def usage(config, task: str, where: str, mask: str) -> str:
    """Returns code that uses the model in the directory `where`, or of that name on the hub, in Markdown."""
    if task == "text-classification" and len(config.task.get("text", ())) == 2:
        task = "pair-classification"
    text = Path(__file__).with_name("usage.md").read_text(encoding="utf-8")
    sections = dict(section.split("\n", 1) for section in text.split("## ")[1:])
    return sections[task].strip().format(where=where, mask=mask)


def training(run, source: str, machine: list[str], workdir: Path) -> Iterator[str]:
    """Yields the commands of the run, and the settings that differ from their defaults."""
    if not run.step:
        return
    config = run.config
    is_labelled = config.objective.name in names.LABELERS
    name = shlex.quote(f"runs/{workdir.absolute().name}")
    if source and not (config.init_from or config.continue_from):
        yield f"    bert-jax import --source {shlex.quote(source)} --workdir {name}"
    command = "finetune" if is_labelled else "pretrain"
    yield f"    bert-jax {command} --config {TRAINING} --workdir {name}"
    yield ""
    yield f"`{TRAINING}` is the saved config; to repeat the run, name a new workdir."
    yield ""
    steps = configs.steps_by_phase(config, run.step)
    phases = configs.phases(config)
    tokens = sum(steps[phase.name] * tasks.tokens_per_step(config, phase) for phase in phases)
    limit = "at most " if is_labelled else ""  # batches of short texts are short
    yield f"- tokens seen: {limit}{tokens:,}, padding included"
    yield f"- seed {config.seed}; matrix products in {config.dtype}"
    for key, (default, value) in configs.changes(config).items():
        if not continuation.may_change(key) and key not in SHOWN:
            yield f"- {key} = {value!r} (default {default!r})"
    yield from machine


def evaluated(run, workdir: Path) -> Iterator[str]:
    """Yields a table of the last metrics of each evaluated split up to the exported step.

    A killed run may have logged later ones.
    """
    lines = {}
    for line in metrics_file.lines(workdir / "metrics.jsonl"):
        if line["step"] <= run.step and line["split"] != "train":
            lines[line["split"]] = line
    for split, line in lines.items():
        yield f"`{split}` at step {line['step']:,}, cross-entropies in nats:"
        yield ""
        yield "| | |"
        yield "| --- | --- |"
        for key, value in line.items():
            if isinstance(value, float) and key not in timing.TIMES:
                yield f"| {key} | {value:.4f} |"
        yield ""
        for key, value in line.items():
            if key.endswith("_signature"):
                yield f"{key.removesuffix('_signature')}: sacrebleu, `{value}`."
        if "headline" in line:
            yield f"{line['headline']}."
