"""The door of command lines: arguments left out, repeated, mistyped, mixed up."""

import json

from hypothesis import strategies as st

from fuzz.attempts import Attempt
from fuzz.damage import TEXTS, VALUES

COMMANDS = "prepare pretrain config inspect benchmark status evaluate verify import export predict"
WORDS = [
    *COMMANDS.split(),
    "compare",
    "plan",
    "--config",
    "--workdir",
    "--json",
    "--store",
    "--step",
]
WORDS += ["--steps", "--save", "--model", "--a", "--b", "--output", "--format", "--top", "--rows"]
WORDS += [
    "--source",
    "--add-words",
    "--batches",
    "--phase",
    "--name",
    "-",
    "--",
    "--help",
    "--version",
]
WORDS += [
    "demo",
    "nowhere",
    "nowhere.json",
    ".",
    "x.py",
    "0",
    "-1",
    "1:2",
    "2:1",
    "a [MASK]",
    "google",
]
WORDS += [
    "--config.seed=1",
    "--config.seed",
    "--config.",
    "--config.=1",
    "--config.model=1",
    "-h",
    "=",
    "@x",
]


def sensible(world) -> list[list]:
    """Command lines that work, and are quick."""
    path = world.path
    return [
        ["config", "--config", "demo", "--json", "-"],
        ["status", "--workdir", path / "run", "--json", "-"],
        ["verify", "--store", path / "store", "--json", "-"],
        ["verify", "--workdir", path / "run", "--json", "-"],
        ["predict", "--model", path / "huggingface", "--json", "-", "the [MASK]"],
        ["inspect", *world.arguments(), "--step", "1", "--json", "-"],
        ["inspect", *world.arguments(), "--steps", "0:1", "--save", "out", "--json", "-"],
        ["export", "--workdir", path / "run", "--output", "exported", "--json", "-"],
        ["import", "--source", path / "huggingface", "--workdir", "imported", "--json", "-"],
        ["compare", "--a", path / "run", "--b", path / "run", "--json", "-"],
        ["config", *world.arguments(), "--json", "-"],
    ]


def command_line(draw, world, place) -> Attempt:
    if draw(st.integers(0, 3)) == 0:
        line = draw(st.lists(st.sampled_from(WORDS), max_size=6))
    else:
        line = [str(part) for part in draw(st.sampled_from(sensible(world)))]
        for _ in range(draw(st.integers(1, 3))):
            line = changed(draw, line)
    # What would read the whole documentation of Python, or train for minutes.
    if any(word in line for word in ("prepare", "pretrain", "benchmark", "inspect", "evaluate")):
        line += [f"--config.corpus.source={place}/none"] * ("demo" in line)
    return Attempt(line, judge_output(line), repr(line))


def changed(draw, line: list[str]) -> list[str]:
    line, at = list(line), draw(st.integers(0, len(line) - 1)) if line else 0
    kind = draw(st.sampled_from(["remove", "double", "replace", "insert", "swap", "odd"]))
    if kind == "remove":
        del line[at : at + 1]
    elif kind == "double":
        line[at:at] = line[at : at + 2]
    elif kind == "replace":
        line[at : at + 1] = [draw(st.sampled_from(WORDS))]
    elif kind == "insert":
        line[at:at] = [draw(st.sampled_from(WORDS))]
    elif kind == "swap" and line:
        other = draw(st.integers(0, len(line) - 1))
        line[at], line[other] = line[other], line[at]
    else:
        odd = [str(value) for value in VALUES if not isinstance(value, str)] + TEXTS
        line[at : at + 1] = [draw(st.sampled_from(odd)).replace("\0", "")]
    return line


def judge_output(line: list[str]):
    """JSON where it was asked for, and something to read where not."""

    def oracle(code, out):
        helps = {"-h", "--help", "--version", "--h", "--he", "--hel"} & set(line)
        if (
            "-" in line
            and "--json" in line
            and not helps
            and line.index("-") == line.index("--json") + 1
        ):
            json.loads(out, parse_constant=lambda name: 1 / 0)
        return "" if out.strip() else "said nothing"

    return oracle
