"""The door of command lines: arguments left out, repeated, mistyped, mixed up."""

import json
from pathlib import Path

from hypothesis import strategies as st
from kits.small import overrides

from bert_jax import __version__, cli, config
from fuzz import configs
from fuzz.attempts import Attempt, captured
from fuzz.damage import VALUES

WORDS = """prepare pretrain config inspect benchmark status evaluate verify import export predict compare plan
    --config --workdir --json --store --step --steps --save --model --output --format --top --rows --source --batches
    --name - -- --help --version -h demo nowhere nowhere.json . x.py 0 -1 1:2 2:1 google --config.seed=1 --config.seed
    --config. --config.=1 --config.model=1 = @x""".split()


def sensible(world) -> list[list]:
    """Command lines that work, and are quick."""
    path = world.path
    return [
        ["config", "--config", "demo", "--json", "-"],
        ["config", *world.arguments(), "--json", "-"],
        ["status", "--workdir", path / "run", "--json", "-"],
        ["verify", "--store", path / "store", "--json", "-"],
        ["predict", "--model", path / "huggingface", "--json", "-", "the [MASK]"],
        ["inspect", "--config", world.config, "--step", "1", "--json", "-"],
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
    line, at = list(line), draw(st.integers(0, max(0, len(line) - 1)))
    kind = draw(st.sampled_from(["remove", "double", "replace", "insert", "odd"]))
    if kind == "remove":
        del line[at : at + 1]
    elif kind == "double":
        line[at:at] = line[at : at + 2]
    elif kind == "insert":
        line[at:at] = [draw(st.sampled_from(WORDS))]
    elif kind == "replace":
        line[at : at + 1] = [draw(st.sampled_from(WORDS))]
    else:
        line[at : at + 1] = [str(draw(st.sampled_from(VALUES))).replace("\0", "")]
    return line


def judge_output(line: list[str], world, place: Path):
    """By what the line asks for, whatever was done to it."""

    def oracle(outcome):
        arguments, given = cli.split_overrides(line)
        with captured():
            try:
                options = cli.parser(cli.COMMANDS).parse_args(arguments)
            except SystemExit:  # of --help and --version
                options = None
        if options is None:
            return "" if outcome.out.startswith(("usage: ", __version__)) else outcome.out[:200]
        if options.json is None:
            return "" if outcome.out.strip() else "said nothing"
        text = outcome.out if options.json == "-" else (place / options.json).read_text()
        judge = JUDGES.get(options.command)
        return judge(options, given, json.loads(text), world) if judge else ""

    return oracle


def of_config(options, given, values, world) -> str:
    given = [*overrides(world.settings)] * (options.config != "demo") + given
    expected = config.load("demo", given).to_dict()
    return configs.differing(expected, values, whole=True)


def of_inspect(options, given, values, world) -> str:
    is_known = options.step is not None and not given and options.config != "demo"
    return "" if not is_known or values["sha256"] == world.digests[options.step] else f"{values}"


# What the others answer is judged at their own doors.
JUDGES = {"config": of_config, "inspect": of_inspect}
