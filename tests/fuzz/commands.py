"""The door of command lines: arguments left out, repeated, mistyped, mixed up."""

import json
import math
import re
from pathlib import Path

from hypothesis import strategies as st
from kits import outside
from kits.small import overrides
from safetensors.numpy import load_file

from bert_jax import __version__, cli
from fuzz import configs, models, reference, runs
from fuzz.attempts import Attempt, captured, parsed
from fuzz.damage import TEXTS, VALUES
from fuzz.world import DOCUMENTS, STEPS

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
        ["inspect", "--config", world.config, "--step", "1", "--json", "-"],
        ["inspect", "--config", world.config, "--steps", "0:1", "--save", "out", "--json", "-"],
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
    return Attempt(line, judge_output(line, world, place), repr(line))


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


# --- What a success has to be ---------------------------------------------------------------------


def judge_output(line: list[str], world, place: Path):
    """By what the line asks for, whatever was done to it."""

    def oracle(code, out, err):
        arguments, given = cli.split_overrides(line)
        with captured():
            try:
                options = cli.parser(cli.COMMANDS).parse_args(arguments)
            except SystemExit:  # of --help and --version
                options = None
        if options is None:
            return "" if out.startswith(("usage: ", __version__)) else f"said {out[:200]!r}"
        name = options.command.__name__.removesuffix("_command")
        if options.json is None:
            shown = re.search(TEXTS_OF[name], out)
            return "" if shown else f"{TEXTS_OF[name]!r} is not in {out[:500]!r}"
        text = out if options.json == "-" else (place / options.json).read_text()
        return JUDGES[name](options, given, parsed(text), world, place)

    return oracle


def of_config(options, given, values, world, place) -> str:
    if options.config != "demo":
        given = [*overrides(world.settings), *given]
    return configs.differing(configs.overridden(given), json.dumps(values), whole=True)


def of_status(options, given, values, world, place) -> str:
    return runs.other_status(place / options.workdir, values)


def of_verify(options, given, values, world, place) -> str:
    directory = place / (options.store or options.workdir)
    sound = directory in (world.path / "store", world.path / "run")
    return "" if values["sound"] == sound and not values["problems"] else f"{values}"


def of_predict(options, given, values, world, place) -> str:
    known = {world.path / "huggingface": world.path / "huggingface"}
    known |= {world.path / "run": world.exported[STEPS]}
    return runs.other_answers(known[place / options.model], options.texts, options.top, values)


def of_inspect(options, given, values, world, place) -> str:
    if options.step is None:
        first, last = options.steps
        manifest = json.loads((place / options.save / "manifest.json").read_text())
        return "" if manifest["files"] and last > first else f"saved {values}"
    given = [*overrides(world.settings)] * (options.config != "demo") + given
    if of_batches(given) == of_batches(overrides(world.settings)):
        known = world.digests[options.step]
        return "" if values["sha256"] == known else f"another batch of step {options.step}"
    return "" if re.fullmatch("[0-9a-f]{64}", values["sha256"]) else f"{values}"


def of_batches(given: list[str]) -> dict:
    """The keys of a config that decide what is in its batches."""
    groups = ("seed", "store", "corpus", "filter", "tokenizer", "objective", "phases", "batches")
    values = configs.overridden(given)
    return {key: values[key] for key in values if key.partition(".")[0] in groups}


def of_export(options, given, values, world, place) -> str:
    if options.format == "google":
        there = reference.read_google(place / options.output / "bert_model.ckpt")
        here = load_file(world.exported[STEPS] / reference.WEIGHTS)
        same = all(there[name].tobytes() == here[name].tobytes() for name in there | here)
        return "" if same else "other tensors"
    return runs.other_export(world.exported[STEPS], place / options.output)


def of_import(options, given, values, world, place) -> str:
    source = place / options.source
    kind = "google" if source == world.path / "google" else "huggingface"
    return models.differing(source, kind, place / options.workdir, place / "exported again")


def of_compare(options, given, values, world, place) -> str:
    if place / options.a != place / options.b:
        return "" if values["a"] != values["b"] else f"{values}"
    same = values["bitwise"] == len(values["tensors"]) > 0 and not values["settings"]
    return "" if same else f"{options.a} is not like itself: {values}"


def of_prepare(options, given, values, world, place) -> str:
    documents = sum(values[split]["documents"] for split in ("train", "heldout"))
    return "" if documents == DOCUMENTS else f"{documents} documents"


def of_evaluate(options, given, values, world, place) -> str:
    likely = 0 < values["mlm_loss"] < 2 * math.log(len(outside.PIECES))
    return "" if likely else f"mlm_loss {values['mlm_loss']}"


def of_benchmark(options, given, values, world, place) -> str:
    times = [phase["compile_seconds"] for phase in values["phases"].values()]
    return "" if times and min(times) > 0 else f"{values}"


JUDGES = {"config": of_config, "status": of_status, "verify": of_verify, "predict": of_predict}
JUDGES |= {"inspect": of_inspect, "export": of_export, "import": of_import}
JUDGES |= {"compare": of_compare, "prepare": of_prepare, "evaluate": of_evaluate}
JUDGES |= {"benchmark": of_benchmark}
# What people are told, in part.
TEXTS_OF = {
    "config": "model.width = ",
    "status": "done, step 4 of 4",
    "verify": ": sound, ",
    "predict": r"\[MASK\] 1: ",
    "inspect": "sha256 [0-9a-f]{64}|to train on them: --config.batches=",
    "export": "parameters of step 4",
    "import": "to go on: bert-jax pretrain",
    "compare": "tensors of the same shape are bitwise equal",
    "prepare": "documents",
    "evaluate": "mlm_loss",
    "benchmark": "main",
}
