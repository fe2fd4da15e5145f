"""All that is wrong with the files of a run. Reads only: nothing in them is executed, nothing is written."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bert_jax import config as configs
from bert_jax.checkpoints import reader
from bert_jax.commands import verify_store
from bert_jax.data.store import Problem
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file, tensorboard, workdir
from bert_jax.storage import regular_files
from bert_jax.tokenizers.special_tokens import SPECIAL

PARTS = ("config.json", "run.json", "status.json", "checkpoints")  # of which a workdir has some
STATES = ("imported", "running", "done", "preempted", "interrupted", "failed")


def verify_workdir(directory: Path) -> dict:
    """{workdir, sound, problems: [{file, problem}], files, bytes, seconds}; BadInput if it is no run."""
    directory, start = Path(directory), time.monotonic()
    if not any(os.path.lexists(directory / name) for name in PARTS):
        raise BadInput(f"--workdir {directory}: not a run (none of {', '.join(PARTS)})")
    sizes = list(verify_store.sizes(directory))
    problems = list(dict.fromkeys(check(directory)))
    return {"workdir": workdir.name(directory)} | verify_store.result(problems, sizes, start)


def check(directory: Path) -> Iterator[Problem]:
    """The files, one by one, and whether they agree with each other."""
    place = workdir.checkpoints(directory)
    facts = yield from read(directory, "run.json", needed=True)
    yield from check_config(directory, facts or {})
    if facts:
        yield from check_facts(facts)
    # First, because a run that goes on saves and then says so.
    status = yield from read(directory, "status.json", needed=reader.newest(place) is not None)
    run = facts.get("run") if facts else None
    steps = reader.problems(place, run if isinstance(run, str) else "")
    newest = max((step for step, reason in steps.items() if not reason), default=None)
    words = yield from verify_store.open_tokenizer(directory)
    if words and facts and isinstance(facts.get("vocabulary"), dict):
        if facts["vocabulary"] != {"size": words.size, **words.special}:
            yield Problem("tokenizer", "not the vocabulary that run.json has")
        elif words.fingerprint != facts.get("tokenizer"):
            yield Problem("tokenizer", "altered: run.json has another fingerprint of it")
    if status:
        yield from check_status(status, newest)
    state = status.get("state") if status else None
    lines = yield from read_metrics(directory, open_end=state in ("running", None))
    yield from check_metrics(lines, newest)
    summary = yield from read(directory, "summary.json", needed=state == "done")
    if summary:
        yield from check_summary(summary, facts or {}, lines)
    for step, reason in sorted(steps.items()):
        if reason:
            yield Problem(f"checkpoints/{step}", reason)
    for path in sorted((directory / "tensorboard").glob("events*")):
        if reason := tensorboard.problem(path):
            yield Problem(f"tensorboard/{path.name}", reason)


def check_config(directory: Path, facts: dict) -> Iterator[Problem]:
    path = directory / "config.json"
    try:
        digest = configs.digest(configs.load(str(path)))
    except BadInput as error:
        yield Problem(path.name, str(error).removeprefix(f"{path}: "))
    else:
        if digest != facts.get("config"):
            yield Problem(path.name, "altered: run.json has another digest of it")


def read(directory: Path, name: str, *, needed: bool) -> Iterator[Problem]:
    """Returns the JSON object of a file, None where there is none."""
    path = directory / name
    if not os.path.lexists(path):
        if needed:
            yield Problem(name, "missing")
        return None
    try:
        return workdir.read_json(path)
    except BadInput as error:
        yield Problem(name, str(error).removeprefix(f"{path}: "))


def check_facts(facts: dict) -> Iterator[Problem]:
    vocabulary = facts.get("vocabulary")
    names = {"size", *SPECIAL}
    if not isinstance(vocabulary, dict) or set(vocabulary) != names:
        yield Problem("run.json", f"vocabulary: expected the numbers {', '.join(sorted(names))}")
    elif not all(metrics_file.is_count(number) for number in vocabulary.values()):
        yield Problem("run.json", "vocabulary: expected whole numbers")
    elif max(vocabulary[name] for name in SPECIAL) >= vocabulary["size"]:
        yield Problem("run.json", "vocabulary: a special id is beyond its size")
    if not isinstance(facts.get("run"), str):
        yield Problem("run.json", "run: missing")
    try:
        metrics_file.starts(facts, "run.json")
    except BadInput as error:
        yield Problem("run.json", str(error).removeprefix("run.json: "))
    if not metrics_file.is_count(facts.get("parameters")):
        yield Problem("run.json", f"parameters: {facts.get('parameters')!r} is no number of them")


def check_status(status: dict, newest: int | None) -> Iterator[Problem]:
    """newest: the newest sound checkpoint."""
    if status.get("state") not in STATES:
        yield Problem("status.json", f"state: {status.get('state')!r} is none of a run")
    step, steps, last = (status.get(key) for key in ("step", "steps", "last_checkpoint"))
    if not metrics_file.is_count(step) or not metrics_file.is_count(steps) or step > steps:
        yield Problem("status.json", f"step: {step!r} of {steps!r}")
    if last is not None and not metrics_file.is_count(last):
        yield Problem("status.json", f"last_checkpoint: {last!r} is no step")
    elif last is not None and (newest is None or newest < last):
        found = "none" if newest is None else newest
        yield Problem("status.json", f"last_checkpoint: {last}, the newest sound one is {found}")


def read_metrics(directory: Path, open_end: bool) -> Iterator[Problem]:
    """Returns the lines, None for what is none; open_end: a kill may have cut off the last, which a start drops."""
    path = directory / "metrics.jsonl"
    if not os.path.lexists(path):
        return []
    try:
        text = regular_files.text(path)
    except (OSError, ValueError) as error:
        yield Problem(path.name, f"unreadable ({error})")
        return []
    found, rest = metrics_file.parsed(text)
    if rest and not open_end:
        yield Problem(path.name, "its last line is cut off")
    for number, line in enumerate(found, 1):
        if line is None:
            shown = text.split("\n")[number - 1][:80]
            yield Problem(path.name, f"line {number}: not a line of metrics: {shown!r}")
    return found


def check_metrics(lines: list[dict | None], newest: int | None) -> Iterator[Problem]:
    """Each step once a split, in order, and the newest checkpoint's reported: that comes before it is saved."""
    last = {}
    for number, line in enumerate(lines, 1):
        if line is None:
            continue
        step, split = line["step"], line["split"]
        if split in last and step == last[split]:
            yield Problem("metrics.jsonl", f"line {number}: step {step} of {split} once more")
        elif step < max(last.values(), default=0):
            yield Problem("metrics.jsonl", f"line {number}: step {step} after a later one")
        last[split] = step
    trained = {line["step"] for line in filter(None, lines) if line["split"] == "train"}
    if newest and newest not in trained:
        yield Problem("metrics.jsonl", f"no line of step {newest}, whose checkpoint is there")


def check_summary(summary: dict, facts: dict, lines: list[dict]) -> Iterator[Problem]:
    """Against what it sums up."""
    for key in ("parameters", "unigram_entropy"):
        if summary.get(key) != facts.get(key, summary.get(key)):
            said = facts[key]
            yield Problem("summary.json", f"{key}: {summary.get(key)!r}, {said!r} in run.json")
    for split, line in {line["split"]: line for line in filter(None, lines)}.items():
        if summary.get(split) != line:
            yield Problem("summary.json", f"{split}: not its last line of metrics.jsonl")
