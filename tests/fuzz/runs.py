"""The doors of workdirs and of texts to fill in: the run's own numbers come out, or nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import load_file

from fuzz.attempts import Attempt, listing, parsed
from fuzz.damage import TEXTS, change_file
from fuzz.data import files

WEIGHTS = "model.safetensors"


def workdir(draw, world, place) -> Attempt:
    run, original = place / "run", world.path / "run"
    shutil.copytree(original, run)
    kind = draw(st.sampled_from(["status", "predict", "export", "verify"]))
    there = [path for path in files(run) if "tensorboard" not in path.parts]
    chosen = [path for path in there if "checkpoints" not in path.parts]
    path = draw(st.sampled_from(draw(st.sampled_from([chosen, chosen, there]))))
    note = f"{kind}, {path.relative_to(run)}: {change_file(draw, path)}"
    before = listing(run)
    if kind == "status":
        arguments = ["status", "--workdir", run, "--json", "-"]
    elif kind == "predict":
        arguments = ["predict", "--model", run, "the [MASK] bank", "--json", "-"]
    elif kind == "verify":
        arguments = ["verify", "--workdir", run, "--json", "-"]
    else:
        arguments = ["export", "--workdir", run, "--output", place / "exported", "--json", "-"]

    def oracle(code, out):
        values = parsed(out)
        if listing(run) != before:
            return "the run has changed"
        if kind == "status":
            there = json.loads((run / "status.json").read_text())
            changed = {key for key in there if values.get(key) != there[key]} - {"state"}
            return f"{changed} are not as in the file" if changed else ""
        if kind == "predict":
            return filled("the [MASK] bank", 5, values[0])
        if kind == "export":
            return same_tensors(world.path / "exported" / WEIGHTS, place / "exported" / WEIGHTS)
        return "" if values["sound"] == (code == 0) == (not values["problems"]) else f"{values}"

    codes = (0, 1) if kind == "verify" else (0,)
    return Attempt([str(part) for part in arguments], oracle, note, codes)


def same_tensors(expected: Path, found: Path) -> str:
    one, two = load_file(expected), load_file(found)
    if one.keys() != two.keys():
        return f"other tensors: {sorted(one.keys() ^ two.keys())}"
    for name, array in one.items():
        if array.shape != two[name].shape or array.tobytes() != two[name].tobytes():
            return f"{name} has other values"
    return ""


def filled(text: str, top: int, result: dict) -> str:
    """What is wrong with the candidates for the masks of a text."""
    if result["text"] != text:
        return f"{text!r} became {result['text']!r}"
    if len(result["masks"]) != text.count("[MASK]"):
        return f"{len(result['masks'])} masks"
    for mask in result["masks"]:
        shares = [candidate["probability"] for candidate in mask]
        right = np.all(np.diff(shares) <= 0) and 0 <= min(shares) and sum(shares) <= 1 + 1e-5
        if not right or len(shares) != top:
            return f"probabilities {shares}"
    return ""


def request(draw, world, place) -> Attempt:
    part = st.sampled_from([*TEXTS, "[MASK]", " [MASK] ", "the bank", "[SEP]", "\udcff", "漢"])
    part |= st.text(st.characters(exclude_characters="\0"), max_size=15)
    texts = draw(st.lists(st.lists(part, max_size=6).map("".join), max_size=2))
    texts += draw(st.sampled_from([[], ["the [MASK]"], ["[MASK] " * 40], ["[MASK]x" * 5]]))
    top = draw(st.sampled_from(["1", "5", "5", "5", "70", "0", "-1", "x", "10" * 20, "٣", "²"]))
    command = ["predict", "--model", str(world.path / "huggingface"), "--top", top, "--json", "-"]

    def oracle(code, out):
        results = parsed(out)
        if len(results) != len(texts):
            return f"{len(results)} results"
        number = min(int(top), results and len(vocabulary(world)))
        return next(
            filter(None, (filled(t, number, r) for t, r in zip(texts, results, strict=False))), ""
        )

    return Attempt([*command, "--", *texts], oracle, f"{top} {texts!r}")


def vocabulary(world) -> list[str]:
    return (world.path / "vocab.txt").read_text().split()
