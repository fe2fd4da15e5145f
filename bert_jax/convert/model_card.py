"""The model card, README.md, written from what a run knows of itself."""

import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax import config as configs
from bert_jax.data import download
from bert_jax.data import store as stores
from bert_jax.errors import BadInput, Unfinished
from bert_jax.runs import metrics_file, timing

TRAINING = "training.json"  # the run's config; config.json is the model's
OTHER = "other  # to be chosen by who publishes it"
PLACES = ("corpus.source", "corpus.data_dir", "tokenizer.path", "compilation_cache")  # paths
TOLD = (
    "corpus.source",
    "corpus.heldout",
    "dtype",
    "seed",
    "store",
    "tokenizer.path",
)  # in lines of their own
UNRECORDED = "not recorded here; name it before publishing"
UNNAMED = "none was named; choose one, and write it at the head of this file"

SNIPPET = """\
from transformers import pipeline

fill = pipeline("fill-mask", model={path!r})
for guess in fill({text!r}):
    print(guess["token_str"], round(guess["score"], 3))
"""
VECTORS = """\
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({path!r})
model = AutoModel.from_pretrained({path!r})
print(model(**tokenizer("One sentence.", return_tensors="pt")).last_hidden_state.shape)
"""
LIMITS = "It repeats what stands in its text, errors and prejudices too, and was measured on nothing but the below."
TEXT = "The answer is in the {mask} of this line."


class About(NamedTuple):
    """What the user says of the model."""

    name: str
    license: str  # of the weights, as the hub spells it, or ''
    data_license: str  # of the text that it was trained on, or ''
    language: str
    path: str  # of the exported directory, as the snippet calls it
    parameters: int  # that are in it


def write(directory: Path, run, workdir: Path, parts: list[str], about: About) -> None:
    """README.md, and the run's config as data, its store by name alone: where it lay is nobody's business."""
    settings = run.config.to_dict()
    settings["store"] = f"stores/{Path(run.config.store).name}"
    for key in PLACES:
        group, _, last = key.rpartition(".")
        tree = settings[group] if group else settings
        tree[last] = public(tree[last])
    (directory / TRAINING).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    check_facts(run.facts, workdir / "run.json")
    text = "\n".join(lines(run, workdir, parts, about))
    (directory / "README.md").write_text(text + "\n", encoding="utf-8")


def check_facts(facts: dict, path: Path) -> None:
    """Raises BadInput where run.json is not as a run has it, in what a card tells."""
    imported, versions = facts.get("imported", {}), facts.get("versions", {})
    known = {
        "devices": all_texts(facts.get("devices", [])),
        "versions": isinstance(versions, dict) and all_texts([*versions.values()]),
        "unigram_entropy": type(facts.get("unigram_entropy", 0.0)) in (int, float),
        "imported": imported == {} or is_named(imported),
    }
    for key, right in known.items():
        if not right:
            raise BadInput(f"{path}: {key}: {str(facts[key])[:100]!r} is not what a run has")


def is_named(imported) -> bool:
    return isinstance(imported, dict) and isinstance(imported.get("source"), str)


def all_texts(values) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def public(places: str) -> str:
    """Paths, by commas, without the directories of the machine that they lay on."""
    parts = (part.strip() for part in places.split(","))
    return ",".join(Path(part).name if part.startswith(("/", "~")) else part for part in parts)


def lines(run, workdir: Path, parts: list[str], about: About) -> Iterator[str]:
    sections = {
        "Use": ["```python", *snippet(run, parts, about).splitlines(), "```"],
        "Limits": [LIMITS],
        "Data": data(run),
        "Training": training(run, workdir),
        "Held-out numbers": heldout(run, workdir),
        "Licence": [
            f"- of the weights: {about.license or UNNAMED}",
            f"- of the text that it was trained on: {about.data_license or UNRECORDED}",
        ],
        "Upload": [f"    hf upload USER/{about.name} {shlex.quote(about.path)} ."],
    }
    yield from front_matter(parts, about)
    yield from ("", f"# {about.name}", "", *what(run, parts, about))
    for title, section in sections.items():
        yield from ("", f"## {title}", "", *section)


def front_matter(parts: list[str], about: About) -> Iterator[str]:
    """What the hub reads. Quoted: to YAML the language `no` is a truth value."""
    yield from ("---", f"license: {json.dumps(about.license) if about.license else OTHER}")
    if about.language:
        yield f"language: {json.dumps(about.language)}"
    yield "library_name: transformers"
    yield f"pipeline_tag: {'fill-mask' if 'mlm' in parts else 'feature-extraction'}"
    yield from ("tags:", "- bert", *["- masked-lm"] * ("mlm" in parts), "- bert_jax", "---")


def what(run, parts: list[str], about: About) -> Iterator[str]:
    model = run.config.model
    heads = {"mlm": "masked LM", "pair": {"nsp": "next sentence", "sop": "sentence order"}}
    pairs = heads["pair"].get(run.config.objective.pairs)
    named = [text for part, text in (("mlm", heads["mlm"]), ("pair", pairs)) if part in parts]
    yield (
        f"A BERT of {model.layers} layers and width {model.width} with {about.parameters:,} parameters"
        f" and {run.vocabulary.size:,} pieces ({run.tokenizer.model.kind}),"
        f" rows of up to {model.positions} tokens; heads: {', '.join(named) or 'none'}."
    )
    source = run.facts.get("imported")
    if source and not run.step:
        yield f"These are the weights of `{source['source']}`, as they were imported: no step has been trained."
        return
    if source:
        yield f"It started from the weights of `{source['source']}`."
    yield f"Pretrained with bert_jax; these are the weights of step {run.step:,}."


def snippet(run, parts: list[str], about: About) -> str:
    text = TEXT.format(mask=run.tokenizer.pieces[run.tokenizer.mask])
    return (SNIPPET if "mlm" in parts else VECTORS).format(path=about.path, text=text)


def data(run) -> Iterator[str]:
    """From the store, where it is still the one that was trained on; else from the config alone."""
    config, found = run.config, open_store(run)
    source = run.facts.get("imported")
    if source:
        yield f"- what `{source['source']}` was trained on is not known here"
    if not run.step:
        return
    yield f"- sources: `{public(config.corpus.source)}` (`corpus.source`)"
    if not found:
        yield "- counts: not known, the token store of this run is not there any more"
    else:
        manifest, numbers = found
        for source in manifest["sources"] if len(manifest["sources"]) > 1 else []:
            yield f"  - `{public(source['source'])}`: {source['documents']['train']:,} documents to train on"
        for split, counts in manifest["splits"].items():
            yield f"- {split}: " + ", ".join(f"{number:,} {of}" for of, number in counts.items())
        if numbers:
            left_out = {key.replace("_", " "): numbers[key] for key in ("copies", "empty")}
            left_out |= numbers["problems"]
            counts = ", ".join(f"{number:,} {reason}" for reason, number in left_out.items())
            yield f"- left out of {numbers['documents_read']:,} documents: {counts}"
    filters = ", ".join(f"{key}={value}" for key, value in sorted(config.filter.items()))
    never = "not trained on since the import" if source else "never trained on"
    yield f"- held out: a share of {config.corpus.heldout:g} of the documents, {never}"
    yield f"- filters: {filters}"


def open_store(run) -> tuple[dict, dict] | None:
    """(manifest, report) of the run's token store, if it is there."""
    try:
        path = download.here(run.config.store)
        if not path:
            return None
        manifest = stores.read_manifest(path)
        numbers = json.loads((path / "report.json").read_text())
    except (BadInput, Unfinished, OSError, ValueError):
        return None
    return (
        (manifest, numbers)
        if manifest["fingerprint"] == run.facts.get("store_fingerprint")
        else None
    )


def training(run, workdir: Path) -> Iterator[str]:
    metrics, place = read_metrics(run, workdir), f"runs/{workdir.absolute().name}"
    source = run.facts.get("imported")
    if not run.step:
        yield "None here."
        return
    if source:
        yield f"    bert-jax import --source {source['source']} --workdir {place}"
    yield f"    bert-jax pretrain --config {TRAINING} --workdir {place}"
    yield ""
    total = real = 0
    for phase in configs.phases(run.config):
        steps = max(0, min(run.step, phase.last) - phase.first)
        tokens = steps * phase.batch * phase.length
        fill = mean_fill(metrics, phase.first, phase.last)
        total, real = total + tokens, real + tokens * fill
        text = f"{fill:.0%} of them text" if fill else "padding not recorded"
        yield (
            f"- phase {phase.name}: {steps:,} of {phase.last - phase.first:,} steps of {phase.batch:,} rows of"
            f" {phase.length} tokens, {text}"
        )
    yield f"- tokens seen: {total:,}" + (f", {real:,.0f} without padding" if real else "")
    yield f"- seed {run.config.seed}; matrix products in {run.config.dtype}"
    for key, (usual, value) in configs.differences(configs.base(), run.config).items():
        if not configs.may_change(key) and key not in TOLD and not key.startswith("phase"):
            yield f"- {key} = {value!r} (usually {usual!r})"
    devices = run.facts.get("devices", [])
    kinds = ", ".join(f"{devices.count(kind)} x {kind}" for kind in dict.fromkeys(devices))
    versions = ", ".join(
        f"{name} {number}" for name, number in run.facts.get("versions", {}).items()
    )
    yield from (
        f"- devices: {kinds or 'not recorded'}",
        f"- versions: {versions or 'not recorded'}",
    )


def mean_fill(metrics: list[dict], first: int, last: int) -> float:
    """Share of a phase's tokens that are not padding: every line is the mean of the steps since the line before."""
    total, steps, before = 0.0, 0, first
    for line in metrics:
        if line["split"] == "train" and first < line["step"] <= last:
            if (fill := line.get("fill")) is not None:  # as where all of these steps were skipped
                total += fill * (line["step"] - before)
                steps += line["step"] - before
            before = line["step"]
    return total / steps if steps else 0.0


def heldout(run, workdir: Path) -> Iterator[str]:
    measured = [line for line in read_metrics(run, workdir) if line["split"] == "heldout"]
    if not measured:
        yield "None were taken."
        return
    values = dict(measured[-1])
    yield f"At step {values.pop('step'):,}, losses in nats:"
    yield from ("", "| | |", "| --- | --- |")
    for key, value in values.items():
        if isinstance(value, float) and key not in timing.TIMES:
            yield f"| {key} | {value:.4f} |"
    yield f"| unigram_entropy | {run.facts.get('unigram_entropy', math.nan):.4f} |"
    yield ""
    yield "`unigram_entropy` is what `mlm_loss_masked` is for a model that knows frequencies and nothing else."


def read_metrics(run, workdir: Path) -> list[dict]:
    """Up to the step that is exported: a killed run may have told of later ones."""
    lines = metrics_file.lines(workdir / "metrics.jsonl")
    return [line for line in lines if line["step"] <= run.step]
