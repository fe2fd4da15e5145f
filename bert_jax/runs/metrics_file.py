"""What a run's files tell of all its starts: the lines of metrics.jsonl, and the starts in run.json."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import regular_files

# Numbers that every line has, and those that one of training has, too. Others may be null: not finite, or not known.
NUMBERS = ("time", "seconds", "save_seconds")
OF_TRAINING = (*NUMBERS, "input_seconds")


def is_count(value) -> bool:
    return type(value) is int and value >= 0


def is_finite(value) -> bool:
    """Whether JSON is a number that can be computed with, however large its integers are."""
    return type(value) in (int, float) and -1e300 < value < 1e300


# --- Lines ----------------------------------------------------------------------------------------


def is_line(values) -> bool:
    """Whether JSON is a line of metrics: a step, a split, and numbers."""
    if not isinstance(values, dict) or not is_count(values.get("step")):
        return False
    split, numbers = values.get("split"), (values[key] for key in values if key != "split")
    needed = OF_TRAINING if split == "train" else NUMBERS
    return (
        isinstance(split, str)
        and all(value is None or type(value) in (int, float) for value in numbers)
        and all(is_finite(values.get(key)) for key in needed)
        and ("fill" in values or split != "train")
    )


def parsed(text: str) -> tuple[list, str]:
    """The values of the lines that have an end (None: not a line of metrics), and the rest, which a kill cut off."""
    *whole, rest = text.split("\n")
    return [line_of(line) for line in whole], rest


def line_of(text: str) -> dict | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if is_line(values) else None


def lines(path: Path) -> list[dict]:
    """The whole lines of metrics.jsonl, none where it is missing. Raises BadInput where one is something else."""
    if not os.path.lexists(path):
        return []
    try:
        text = regular_files.text(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    found, _ = parsed(text)
    if None in found:
        number = found.index(None)
        line = text.split("\n")[number]
        raise BadInput(f"{path}: line {number + 1}: not a line of metrics: {line[:80]!r}")
    return found


def mend(path: Path) -> list[str]:
    """Of a damaged metrics.jsonl the sound lines stay, and all of it beside them: no run ends for its log. Returns what
    is to be told. Raises BadInput where it is no file."""
    try:
        lines(path)
        return []
    except BadInput as error:
        if not path.is_file():
            raise
        kept = [line for line in parsed(regular_files.text(path, errors="replace"))[0] if line]
        aside = path.with_name(f"metrics.damaged-{time.time_ns()}.jsonl")
        os.replace(path, aside)
        write(path, kept)
        return [f"{error}; its {len(kept)} sound lines are kept, and all of it as {aside.name}"]


def drop_after(path: Path, step: int) -> None:
    """Keeps the lines up to `step`: what comes after is reported again by the resumed run."""
    if path.exists():
        write(path, [line for line in lines(path) if line["step"] <= step])


def write(path: Path, lines: list[dict]) -> None:
    """Replaces the file in one go."""
    temporary = path.with_name(".metrics.jsonl.new")
    temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.replace(temporary, path)


# --- Starts ---------------------------------------------------------------------------------------


def begun(step: int, compile_seconds: float) -> dict:
    """A start, as run.json keeps it: training goes on from `step` now."""
    return {"step": step, "time": time.time(), "compile_seconds": compile_seconds}


def starts(facts: dict, path) -> list[dict]:
    """Those of run.json, which is at `path`; BadInput where it says something else."""
    found = facts.get("starts", [])
    keys = ("step", "time", "compile_seconds")
    known = isinstance(found, list) and all(
        isinstance(start, dict)
        and all(is_finite(start.get(key)) and start[key] >= 0 for key in keys)
        for start in found
    )
    if not known:
        raise BadInput(f"{path}: starts: {str(found)[:100]!r} is not what a run has")
    return found


def lost(starts: list[dict], lines: list[dict], last_save: float) -> dict[str, float]:
    """Seconds, by what they went to instead of steps; input is the only part of the lines' own seconds.

    starts: from the first. lines: of metrics.jsonl, those that every restart has kept. last_save: seconds that the
    save after the last line took.
    """
    train = [line for line in lines if line["split"] == "train"]
    return {
        "compile": sum(start["compile_seconds"] for start in starts),
        "save": sum(line["save_seconds"] for line in lines) + last_save,
        "evaluate": sum(line["seconds"] for line in lines if line["split"] == "heldout"),
        "input": sum(line["input_seconds"] for line in train),
        "restart": sum(restarts(starts, lines)),
    }


def restarts(starts: list[dict], lines: list[dict]) -> Iterator[float]:
    """Of every start that took steps which were kept: the seconds since the last line before it that was kept, or since
    the first start, without those that were spent compiling."""
    for number, start in enumerate(starts[1:], 1):
        if any(later["step"] <= start["step"] for later in starts[number + 1 :]):
            continue  # whatever came of it was lost, too: the later start counts from the same line
        kept = [x["time"] for x in lines if x["step"] <= start["step"]]
        since = max((t for t in kept if t <= start["time"]), default=starts[0]["time"])
        compiled = sum(s["compile_seconds"] for s in starts[: number + 1] if s["time"] > since)
        yield max(0.0, start["time"] - since - compiled)
