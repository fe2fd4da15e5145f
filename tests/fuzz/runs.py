"""The doors of workdirs and of texts to fill in: the run's own numbers come out, or nothing."""

import json
import shutil
from pathlib import Path

from hypothesis import strategies as st
from safetensors.numpy import load_file

from fuzz import reference, sound_run
from fuzz.attempts import Attempt, listing, parsed, skipped
from fuzz.damage import TEXTS, change_file
from fuzz.data import files
from fuzz.world import EARLIER, STEPS

TEXT = "the [MASK] bank"
# Of an export. README.md and training.json tell of metrics and places, which nothing covers.
TOLD = ("README.md", "training.json")


def workdir(draw, world, place) -> Attempt:
    run, original = place / "run", world.path / "run"
    shutil.copytree(original, run)
    kind = draw(st.sampled_from(["status", "predict", "export", "verify"]))
    there = [path for path in files(run) if "tensorboard" not in path.parts]
    chosen = [path for path in there if "checkpoints" not in path.parts]
    path = draw(st.sampled_from(draw(st.sampled_from([chosen, chosen, there]))))
    name = path.relative_to(run)
    note = f"{kind}, {name}: {change_file(draw, path)}"
    before = listing(run)
    if kind == "status":
        arguments = ["status", "--workdir", run, "--json", "-"]
    elif kind == "predict":
        arguments = ["predict", "--model", run, TEXT, "--json", "-"]
    elif kind == "verify":
        arguments = ["verify", "--workdir", run, "--json", "-"]
    else:
        arguments = ["export", "--workdir", run, "--output", place / "exported", "--json", "-"]

    def oracle(code, out, err):
        values = parsed(out)
        if listing(run) != before:
            return "the run has changed"
        if kind == "status":
            return other_status(run, values)
        if kind == "verify":
            return sound_run.misjudged(original, run, str(name), code, values)
        step = EARLIER if skipped(err) else STEPS
        if step == EARLIER and (skipped(err) != {STEPS} or name.parts[1:2] != (str(STEPS),)):
            return f"skipped {skipped(err)}, of which nothing was damaged"
        if kind == "predict":
            return reference.filled(reference.open_model(world.exported[step]), TEXT, 5, values[0])
        if values["step"] != step:
            return f"step {values['step']} exported, expected {step}"
        return other_export(world.exported[step], place / "exported")

    codes = (0, 1) if kind == "verify" else (0,)
    return Attempt([str(part) for part in arguments], oracle, note, codes)


def other_status(run: Path, values: dict) -> str:
    """What is not as in status.json; of a run that says that it runs nobody is there any more."""
    there = json.loads((run / "status.json").read_text())
    if there["state"] == "running" and values["state"] in ("killed", "silent"):
        values = values | {"state": "running"}
    changed = {key for key in there | values if values.get(key) != there.get(key)}
    return f"{changed} are not as in the file" if changed else ""


def other_export(expected: Path, found: Path) -> str:
    """In what two exported directories differ."""
    one, two = ({path.name: path for path in place.iterdir()} for place in (expected, found))
    if one.keys() != two.keys():
        return f"other files: {sorted(one.keys() ^ two.keys())}"
    for name in one.keys() - {*TOLD, reference.WEIGHTS}:
        if one[name].read_bytes() != two[name].read_bytes():
            return f"{name} is another"
    return same_tensors(one[reference.WEIGHTS], two[reference.WEIGHTS])


def same_tensors(expected: Path, found: Path) -> str:
    one, two = load_file(expected), load_file(found)
    if one.keys() != two.keys():
        return f"other tensors: {sorted(one.keys() ^ two.keys())}"
    for name, array in one.items():
        if array.shape != two[name].shape or array.tobytes() != two[name].tobytes():
            return f"{name} has other values"
    return ""


def request(draw, world, place) -> Attempt:
    part = st.sampled_from([*TEXTS, "[MASK]", " [MASK] ", "the bank", "[SEP]", "\udcff", "漢"])
    part |= st.text(st.characters(exclude_characters="\0"), max_size=15)
    texts = draw(st.lists(st.lists(part, max_size=6).map("".join), max_size=2))
    texts += draw(st.sampled_from([[], ["the [MASK]"], ["[MASK] " * 40], ["[MASK]x" * 5]]))
    top = draw(st.sampled_from(["1", "5", "5", "5", "70", "0", "-1", "x", "10" * 20, "٣", "²"]))
    command = ["predict", "--model", str(world.path / "huggingface"), "--top", top, "--json", "-"]

    def oracle(code, out, err):
        return other_answers(world.path / "huggingface", texts, int(top), parsed(out))

    return Attempt([*command, "--", *texts], oracle, f"{top} {texts!r}")


def other_answers(directory: Path, texts: list[str], top: int, results: list[dict]) -> str:
    """What is wrong with the answers of the model of a Hugging Face directory."""
    if len(results) != len(texts):
        return f"{len(results)} results"
    model = reference.open_model(directory)
    top = min(top, len(model.pieces))
    pairs = zip(texts, results, strict=True)
    problems = (reference.filled(model, text, top, result) for text, result in pairs)
    return next(filter(None, problems), "")
