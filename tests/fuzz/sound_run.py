"""Whether what `verify --workdir` says of a damaged run is right, by what its files say before and after."""

import json
from pathlib import Path

from bert_jax import config as configs
from bert_jax.checkpoints import reader
from fuzz.configs import flat

# Keys of a config of which nothing that was learnt depends, or of which phases to come may have others.
FREE = (
    "mesh",
    "train",
    "guard",
    "log",
    "profile",
    "evaluate",
    "checkpoint",
    "deadlines",
    "distributed",
)
FREE += ("phases", "phase_order", "store", "store_hashes", "batches", "bands", "compilation_cache")
FREE += ("corpus.workers", "corpus.data_dir", "tokenizer.path")
FACTS = ("run", "parameters", "vocabulary", "tokenizer", "config", "unigram_entropy")
# Damage of these may show as something else that does not agree with them.
AGREE = ("run.json", "status.json", "metrics.jsonl", "summary.json")


def misjudged(original: Path, run: Path, name: str, code: int, values: dict) -> str:
    """What is wrong with the verdict on a run of which the file `name` was damaged."""
    if values["sound"] != (code == 0) or values["sound"] == bool(values["problems"]):
        return f"exit code {code} of {values}"
    if code == 0:
        changed = meaning(original, name) != meaning(run, name)
        return f"called sound: {name}" if changed else ""
    named = {problem["file"] for problem in values["problems"]}
    right = name in AGREE or any(name == n or name.startswith(f"{n}/") for n in named)
    same = content(original / name) == content(run / name) and not (run / name).is_symlink()
    return f"{named} named of {name}" if same or not right else ""


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def meaning(run: Path, name: str):
    """What a file says of which a change has to be found; None of one that cannot be read."""
    path, group = run / name, Path(name).parts[0]
    if group == "checkpoints":
        return arrays(run / Path(*Path(name).parts[:2]))
    if name not in READERS:
        return ""  # nothing covers it
    try:
        return READERS[name](path.read_text(encoding="utf-8")) if path.is_file() else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def arrays(place: Path) -> dict[str, bytes] | None:
    """Every array of a checkpoint, as its fingerprints name them; None where one cannot be read."""
    if not all(path.is_file() or path.is_dir() for path in place.rglob("*")):
        return None  # a pipe would be waited for
    try:
        names = reader.read_manifest(place)
        return {name: reader.read(place, name).tobytes() for name in names}
    except Exception:  # what reads them raises what it likes
        return None


def config(text: str) -> dict:
    """Its keys that count; those that it lacks are as they are by default."""
    usual, own = flat(configs.base().to_dict()), flat(json.loads(text))
    values = {key: own.get(key, usual.get(key)) for key in usual | own if not is_free(key)}
    model = "model.feed_forward"
    return values | {model: values[model] or 4 * values["model.width"]}


def is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def facts(text: str) -> dict:
    values = json.loads(text)
    return {key: json.dumps(values[key], sort_keys=True) for key in FACTS if key in values}


def status(text: str) -> bool:
    """What a run is doing is known to itself alone; but it is said."""
    values = json.loads(text)
    return isinstance(values["state"], str) and values["step"] <= values["steps"]


def last_lines(text: str) -> dict:
    """Of each split, by the steps of all: of the others only the order can be known."""
    lines = [json.loads(line) for line in text.splitlines() if line]
    return {line["split"]: line for line in lines}


def summary(text: str) -> dict:
    values = json.loads(text)
    kept = ("parameters", "unigram_entropy", "train", "heldout")
    return {key: json.dumps(values[key], sort_keys=True) for key in kept if key in values}


def settings(text: str) -> tuple:
    values = json.loads(text)
    return values["kind"], values["lowercase"]


READERS = {
    "config.json": config,
    "run.json": facts,
    "status.json": status,
    "metrics.jsonl": last_lines,
    "summary.json": summary,
    "tokenizer/settings.json": settings,
    "tokenizer/vocab.txt": lambda text: text.removesuffix("\n").split("\n"),
}
