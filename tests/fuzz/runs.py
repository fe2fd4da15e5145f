"""The door of workdirs: the run's own numbers come out, or nothing."""

import json
import shutil
from pathlib import Path

import jax
from hypothesis import strategies as st
from safetensors.numpy import load_file

from bert_jax.checkpoints import reader
from bert_jax.parallel.mesh import path_name
from fuzz.attempts import Attempt, listing
from fuzz.damage import change_file, files
from fuzz.world import EARLIER, STEPS, TEXT

WEIGHTS = "model.safetensors"
# Of an export. README.md and training.json tell of metrics and places, which nothing covers.
TOLD = ("README.md", "training.json")
# Damage of these may show as something else that does not agree with them.
AGREE = ("run.json", "status.json", "metrics.jsonl", "summary.json")


def workdir(draw, world, place) -> Attempt:
    run, original, exported = place / "run", world.path / "run", place / "exported"
    shutil.copytree(original, run)
    chosen = [path for path in files(run) if "tensorboard" not in path.parts]
    path = draw(st.sampled_from(chosen))
    if draw(st.booleans()):  # there are many files of arrays, and few others
        path = draw(st.sampled_from([path for path in chosen if "checkpoints" not in path.parts]))
    name = path.relative_to(run)
    note = change_file(draw, path)
    before = listing(run)
    arguments = {
        "status": ["--workdir", run],
        "verify": ["--workdir", run],
        "predict": ["--model", run, TEXT],
        "export": ["--workdir", run, "--output", exported],
    }
    kind = draw(st.sampled_from(list(arguments)))

    def oracle(outcome):
        values, step = outcome.values, EARLIER if outcome.skipped else STEPS
        if listing(run) != before:
            return "the run has changed"
        if kind == "status":
            return other_status(run, values)
        if kind == "verify":
            return misjudged(original, run, name, outcome)
        if outcome.skipped and (outcome.skipped != {STEPS} or name.parts[1:2] != (str(STEPS),)):
            return f"skipped {outcome.skipped}, of which nothing was damaged"
        if kind == "predict":
            return "" if values == world.answers[step] else f"of step {step} came {values}"
        if values["step"] != step:
            return f"step {values['step']} exported, expected {step}"
        return other_export(world.exported[step], exported)

    command = [kind, *arguments[kind], "--json", "-"]
    codes = (0, 1) if kind == "verify" else (0,)
    return Attempt(command, oracle, f"{kind}, {name}: {note}", codes)


def other_status(run: Path, values: dict) -> str:
    """What is not as in status.json; of a run that says that it runs nobody is there any more."""
    there = json.loads((run / "status.json").read_text())
    if there["state"] == "running" and values["state"] in ("killed", "silent"):
        values = values | {"state": "running"}
    changed = {key for key in there | values if values.get(key) != there.get(key)}
    return f"{changed} are not as in the file" if changed else ""


def misjudged(original: Path, run: Path, name: Path, outcome) -> str:
    """What is wrong with the verdict on a run of which the file `name` was damaged; of the other files only
    those that cannot be read are named."""
    values, is_sound = outcome.values, outcome.code == 0
    if values["sound"] != is_sound or bool(values["problems"]) == is_sound:
        return f"exit code {outcome.code} of {values}"
    if not is_sound:
        named = {problem["file"] for problem in values["problems"]}
        is_right = any(str(name) == n or str(name).startswith(f"{n}/") for n in named)
        return "" if is_right or str(name) in AGREE else f"{named} named of {name}"
    if name.parts[0] != "checkpoints":
        return ""
    step = Path(*name.parts[:2])
    return "" if arrays(original / step) == arrays(run / step) else f"called sound: {name}"


def arrays(place: Path) -> dict[str, bytes]:
    """Every array of a checkpoint, as its fingerprints name them."""
    trees = {item: reader.read(place, item) for item in reader.ITEMS}
    return {path_name(path): leaf.tobytes() for path, leaf in jax.tree.leaves_with_path(trees)}


def other_export(expected: Path, found: Path) -> str:
    """In what two exported directories differ."""
    one, two = ({path.name: path for path in place.iterdir()} for place in (expected, found))
    if one.keys() != two.keys():
        return f"other files: {sorted(one.keys() ^ two.keys())}"
    for name in one.keys() - {*TOLD, WEIGHTS}:
        if one[name].read_bytes() != two[name].read_bytes():
            return f"{name} is another"
    return other_tensors(load_file(one[WEIGHTS]), load_file(two[WEIGHTS]))


def other_tensors(expected: dict, found: dict) -> str:
    if expected.keys() != found.keys():
        return f"other tensors: {sorted(expected.keys() ^ found.keys())}"
    for name, array in expected.items():
        if array.shape != found[name].shape or array.tobytes() != found[name].tobytes():
            return f"{name} has other values"
    return ""
