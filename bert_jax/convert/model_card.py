"""The model card, README.md, written from what a run knows of itself."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import ModelCard, ModelCardData

from bert_jax import config as configs
from bert_jax.data import download
from bert_jax.errors import BadInput, Unfinished, one_line
from bert_jax.runs import metrics_file, timing

TRAINING = "training.json"  # the run's config; config.json is the model's
PLACES = ("corpus.source", "tokenizer.path", "compilation_cache")  # paths
TOLD = ("corpus.source", "dtype", "seed", "store", "tokenizer.path")  # in lines of their own

BODY = """\
---
{head}
---

# {about.name}

A BERT of {model.layers} layers and width {model.width} with {about.parameters:,} parameters and {size:,} pieces
({kind}), rows of up to {model.max_length} tokens; parts: {parts}.
{origin}

## Use

```python
from transformers import pipeline

print(pipeline("{task}", model={about.path!r})("The answer is in the {mask} of this line."))
```

It repeats what stands in its text, errors and prejudices too, and was measured on nothing but the below.

## Data

{data}
- licence of the text: {license}

## Training

{training}

## Held-out numbers

{heldout}

## Upload

    hf upload {repository} {path} .
"""


class About(NamedTuple):
    """What the user says of the model."""

    name: str = ""  # the workdir's where there is none
    license: str = ""  # of the weights, as the hub spells it: apache-2.0
    data_license: str = ""  # of the text that it was trained on
    language: str = ""  # as the hub spells it: en
    path: str = ""  # of the exported directory, as the snippet calls it
    parameters: int = 0  # that are in it


class Facts(NamedTuple):
    """The values of run.json that a card shows."""

    source: str  # whose weights were imported; none where it is empty
    devices: str
    versions: str
    entropy: float | None  # of single pieces of the training split, in nats


def write(directory: Path, run, workdir: Path, parts: list[str], about: About) -> None:
    """README.md, and the run's config as data, its store by name alone: where it lay is nobody's business."""
    settings = run.config.to_dict()
    settings["store"] = f"stores/{Path(run.config.store).name}"
    for key in PLACES:
        group, _, last = key.rpartition(".")
        tree = settings[group] if group else settings
        tree[last] = public(tree[last])
    (directory / TRAINING).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    try:
        facts = read_facts(run.facts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{workdir / 'run.json'}: not as a run has it ({one_line(error)})") from None
    ModelCard(body(run, facts, workdir, parts, about)).save(directory / "README.md")


def read_facts(values: dict) -> Facts:
    devices = Counter(values.get("devices", []))
    return Facts(
        source=str(values["imported"]["source"]) if "imported" in values else "",
        devices=", ".join(f"{number} x {kind}" for kind, number in devices.items()),
        versions=", ".join(f"{name} {v}" for name, v in values.get("versions", {}).items()),
        entropy=float(values["unigram_entropy"]) if "unigram_entropy" in values else None,
    )


def public(places: str) -> str:
    """Paths, by commas, without the directories of the machine that they lay on."""
    parts = (part.strip() for part in places.split(","))
    return ",".join(Path(part).name if part.startswith(("/", "~")) else part for part in parts)


def body(run, facts: Facts, workdir: Path, parts: list[str], about: About) -> str:
    about = about._replace(name=about.name or workdir.absolute().name)
    task = "fill-mask" if "mlm" in parts else "feature-extraction"
    head = ModelCardData(
        license=about.license or "other",
        language=about.language or None,
        library_name="transformers",
        pipeline_tag=task,
        tags=["bert", "bert_jax"],
    )
    origin = [f"It started from the weights of `{facts.source}`."] if facts.source else []
    if run.step:
        origin.append(f"Pretrained with bert_jax; these are the weights of step {run.step:,}.")
    return BODY.format(
        about=about,
        head=head.to_yaml(),
        model=run.config.model,
        size=run.vocabulary.size,
        kind=run.tokenizer.kind,
        parts=", ".join(parts),
        origin=" ".join(origin),
        task=task,
        mask=run.tokenizer.pieces[run.tokenizer.mask],
        data="\n".join(data(run, facts)),
        license=about.data_license or "not recorded here; name it before publishing",
        training="\n".join(training(run, facts, workdir)) or "None here.",
        heldout="\n".join(heldout(run, facts, workdir)) or "None were taken.",
        repository=shlex.quote(f"USER/{about.name}"),
        path=shlex.quote(about.path),
    )


def data(run, facts: Facts) -> Iterator[str]:
    """From the store, where it is still the one that was trained on; else from the config alone."""
    config = run.config
    if facts.source:
        yield f"- what `{facts.source}` was trained on is not known here"
    if not run.step:
        return
    yield f"- sources: `{public(config.corpus.source)}`, {config.corpus.heldout:.1%} of its documents held out"
    try:
        manifest = download.read_manifest(config.store)
    except (BadInput, Unfinished, OSError):
        return
    if manifest["fingerprint"] == run.facts.get("store_fingerprint", ""):
        for split, counts in manifest["splits"].items():
            yield f"- {split}: " + ", ".join(f"{number:,} {of}" for of, number in counts.items())


def training(run, facts: Facts, workdir: Path) -> Iterator[str]:
    if not run.step:
        return
    config, place = run.config, shlex.quote(f"runs/{workdir.absolute().name}")
    if facts.source:
        yield f"    bert-jax import --source {shlex.quote(facts.source)} --workdir {place}"
    yield f"    bert-jax pretrain --config {TRAINING} --workdir {place}"
    yield ""
    phases = configs.phases(config)
    steps = (max(0, min(run.step, phase.last) - phase.first) for phase in phases)
    tokens = sum(s * phase.batch * phase.length for s, phase in zip(steps, phases, strict=True))
    yield f"- tokens seen: {tokens:,}, padding included"
    yield f"- seed {config.seed}; matrix products in {config.dtype}"
    for key, (usual, value) in configs.differences(configs.base(), config).items():
        if not configs.may_change(key) and key not in TOLD:
            yield f"- {key} = {value!r} (usually {usual!r})"
    yield f"- devices: {facts.devices}"
    yield f"- versions: {facts.versions}"


def heldout(run, facts: Facts, workdir: Path) -> Iterator[str]:
    """Of the step that is exported at most: a killed run may have told of later ones."""
    lines = metrics_file.lines(workdir / "metrics.jsonl")
    measured = [line for line in lines if line["split"] == "heldout" and line["step"] <= run.step]
    if not measured:
        return
    yield f"At step {measured[-1]['step']:,}, losses in nats:"
    yield from ("", "| | |", "| --- | --- |")
    for key, value in measured[-1].items():
        if isinstance(value, float) and key not in timing.TIMES:
            yield f"| {key} | {value:.4f} |"
    if facts.entropy is not None:
        yield f"| unigram_entropy | {facts.entropy:.4f} |"
        yield ""
        yield "`unigram_entropy` is what `mlm_loss_masked` is for a model that knows frequencies and nothing else."
