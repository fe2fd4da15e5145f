"""Writes the model card, README.md, from the template model_card.md and the files of a run."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import ModelCard, ModelCardData

from bert_jax import config as configs
from bert_jax.convert import load_model, names
from bert_jax.errors import BadInput, one_line
from bert_jax.runs import metrics_file, timing

TRAINING = "training.json"  # the run's config; config.json is that of the model
# Keys whose values are paths, and keys that have lines of their own.
PATHS = ("corpus.source", *configs.STARTS, "task.data", "tokenizer.path", "compilation_cache")
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
    run = run._replace(config=load_model.read_config(workdir, run.info))
    settings = run.config.to_dict()
    settings["store"] = f"stores/{Path(run.config.store).name}"
    for key in PATHS:
        group, _, last = key.rpartition(".")
        tree = settings[group] if group else settings
        if last in tree:
            tree[last] = strip_directories(tree[last])
    (directory / TRAINING).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    try:
        info = read_info(run.info)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{workdir / 'run.json'}: damaged ({one_line(error)})") from None
    ModelCard(body(run, info, workdir, parts, about)).save(directory / "README.md")


def read_info(values: dict) -> tuple[str, list[str]]:
    """Returns, of the content of run.json, the name of the model that was imported or that init_from names, '' if none,
    and lines about devices and versions.

    Raises AttributeError, KeyError, TypeError or ValueError if it is damaged.
    """
    source = str(values["imported"]["source"]) if "imported" in values else ""
    devices = Counter(values.get("devices", [])).items()
    kinds = ", ".join(f"{number} x {kind}" for kind, number in devices)
    versions = ", ".join(f"{name} {v}" for name, v in values.get("versions", {}).items())
    return source, [f"- devices: {kinds}", f"- versions: {versions}"]


def strip_directories(paths: str) -> str:
    """Returns comma-separated paths with absolute ones reduced to their names."""
    parts = (part.strip() for part in paths.split(","))
    return ",".join(Path(part).name if part.startswith(("/", "~")) else part for part in parts)


def body(run, info: tuple[str, list[str]], workdir: Path, parts: list[str], about: About) -> str:
    """Returns the text of README.md. info: of `read_info`. parts: the parts of names.py that were exported."""
    source, machine = info
    name = workdir.absolute().name
    config, task = run.config, "fill-mask" if "mlm" in parts else "feature-extraction"
    if "label" in parts:
        task = names.LABELERS[config.objective.name][1]
    head = ModelCardData(
        license=about.license or "other",
        language=about.language or None,
        library_name="transformers",
        pipeline_tag=task,
        tags=[config.model.name, "bert_jax"],
    )
    origin, data = [], []
    if source:
        origin.append(f"It started from the weights of `{source}`.")
        data.append(f"- the training data of `{source}` is not recorded here")
    most, where = config.model.max_length, about.repository or about.path
    if about.positions < most:
        origin.append(f"Positions of longer rows, up to {most}, were never trained.")
    if run.step:
        weights = f"the weights of step {run.step:,}"
        if about.average > 1:
            last = f"step {run.step:,}, which alone is evaluated below"
            weights = f"the mean of {about.average} checkpoints, the last one of {last}"
        origin.append(f"Trained with bert_jax; these are {weights}.")
        sources = strip_directories(config.task.get("data", config.corpus.source))
        data.append(f"- sources: `{sources}`")
    if "label" in parts:
        origin.append(f"Fine-tuned for {task}; labels: {', '.join(config.task.labels) or 'none'}.")
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        about=about,
        name=name,
        head=head.to_yaml(),
        family=names.ARCHITECTURES[config.model.name].CLASS.replace("Bert", "BERT"),
        model=config.model,
        size=run.vocabulary.size,
        kind=run.tokenizer.kind,
        parts=", ".join(parts),
        origin=" ".join(origin),
        usage=usage(config, task, where, run.tokenizer.pieces[run.tokenizer.mask]),
        data="\n".join(data),
        training="\n".join(training(run, source, machine, workdir)) or "Not trained by bert_jax.",
        evaluated="\n".join(evaluated(run, workdir)) or "Not evaluated.",
        repository=shlex.quote(about.repository or f"USER/{name}"),
        path=shlex.quote(about.path),
    )


def usage(config, task: str, where: str, mask: str) -> str:
    """Returns code that uses the model in the directory `where`, or of that name on the hub, in Markdown."""
    paired = task == "text-classification" and len(config.task.get("text", ())) == 2
    text = Path(__file__).with_name("usage.md").read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in text.split("## ")[1:])
    name = "pair-classification" if paired else task
    return sections[name].strip().format(where=where, mask=mask)


def training(run, source: str, machine: list[str], workdir: Path) -> Iterator[str]:
    """Yields the commands of the run, and the settings that differ from their defaults."""
    if not run.step:
        return
    config, name = run.config, shlex.quote(f"runs/{workdir.absolute().name}")
    if source and not (config.init_from or config.continue_from):
        yield f"    bert-jax import --source {shlex.quote(source)} --workdir {name}"
    command = "finetune" if "data" in config.task else "pretrain"
    yield f"    bert-jax {command} --config {TRAINING} --workdir {name}"
    yield from ("", f"`{TRAINING}` is the saved config; to repeat the run, name a new workdir.", "")
    steps, phases = configs.steps_by_phase(config, run.step), configs.phases(config)
    seen = sum(steps[phase.name] * phase.batch * phase.length for phase in phases)
    # Batches of short texts are short.
    yield f"- tokens seen: {'at most ' * ('data' in config.task)}{seen:,}, padding included"
    yield f"- seed {config.seed}; matrix products in {config.dtype}"
    for key, (default, value) in configs.changes(config).items():
        if not configs.may_change(key) and key not in SHOWN:
            yield f"- {key} = {value!r} (default {default!r})"
    yield from machine


def evaluated(run, workdir: Path) -> Iterator[str]:
    """Yields a table of the last metrics of each evaluated split up to the exported step: a killed run may have logged
    later ones."""
    lines = metrics_file.lines(workdir / "metrics.jsonl")
    for split, line in {line["split"]: line for line in lines if line["step"] <= run.step}.items():
        if split == "train":
            continue
        yield f"`{split}` at step {line['step']:,}, cross-entropies in nats:"
        yield from ("", "| | |", "| --- | --- |")
        for key, value in line.items():
            if isinstance(value, float) and key not in timing.TIMES:
                yield f"| {key} | {value:.4f} |"
        yield ""
        if "headline" in line:
            yield f"{line['headline']}."
