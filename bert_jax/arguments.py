"""What can be said on the command line: the options of each command, what they may be, and the words of --help."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax import __version__
from bert_jax.errors import BadInput
from bert_jax.remote import address

DESCRIPTION = """BERT pretraining in JAX: raw text in, a downstream-ready BERT out.

Any key of a config can be set with --config.KEY=VALUE, for example --config.train.micro_batches=4.
"""
EXIT_CODES = """exit codes:
    0  done
    1  failed: something has to be mended first
    2  bad input
   75  preempted after saving, or before the first step: start again
   76  another process of the run, a device or an address was lost or is missing: start again
  130  interrupted, after saving where anything was trained, unless interrupted twice
  134  aborted by JAX, because another process of the run was lost: start again
  137  killed, by others or at one of its own deadlines (config.deadlines): start again
  143  terminated where nothing is saved, as in its first seconds: start again
launch/again.sh starts a command again.
"""


class Option(NamedTuple):
    name: str
    settings: dict[str, Any]  # of argparse


def option(name: str, help: str, **settings) -> Option:
    return Option(name, settings | dict(help=help))


# --- What they may be -----------------------------------------------------------------------------


def place(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, not nothing")
    return Path(text)


def named(text: str) -> str:
    """A place, or a word that stands for none."""
    place(text)
    return text


def run_place(text: str) -> str | Path:
    """A directory, or an address."""
    return address(text) if text else place(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1")
    return int(text)


def interval(text: str) -> tuple[int, int]:
    """A and B of "A:B"."""
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text}: expected A:B, the steps A to B - 1")
    return int(first), int(last)


def prices(text: str) -> dict[str, float]:
    """{kind of chip, or "" for all: price} of 1.2 or of v5e=1.2,v6e=2.7."""
    found = {}
    for part in text.split(","):
        kind, _, number = part.rpartition("=")
        twice = kind in found
        try:
            found[kind] = float(number)
        except ValueError:
            found[kind] = math.nan
        if twice or not 0 <= found[kind] < math.inf:
            raise argparse.ArgumentTypeError(
                f"{text}: expected a number from 0, or v5e=1.2,v6e=2.7"
            )
    return found


# --- Options --------------------------------------------------------------------------------------

NEEDED = dict(required=True)
AS_JSON = option("--json", "also write results here; - is standard output", metavar="FILE")
# Configs.
CONFIG = option("--config", "a shipped config (demo), a .py file, or a config.json", **NEEDED)
OF_RUN_TO_COME = option("--config", "config of the run to come; base where it is left out")
OF_TEXT = option("--config", "whose held-out text the models are measured on")
# Places.
RUN = option("--workdir", "directory or address of the run", type=run_place, **NEEDED)
RUN_FILES = option("--workdir", "directory or address of a run", type=run_place)
MEASURED = option("--workdir", "of a run, on rows of its own store", type=run_place)
MODEL = option(
    "--model", "directory of a run, or of another program's model", type=run_place, **NEEDED
)
MODELS = option("--model", "directory of a model; may repeat", type=run_place, action="append")
PAIR = [option(name, "directory of a model", type=run_place, **NEEDED) for name in ("--a", "--b")]
STORE = option("--store", "directory or address of a token store", type=run_place)
SOURCE = option("--source", "directory of a model of another program", type=place, **NEEDED)
OUTPUT = option("--output", "directory to write; may not be there yet", type=place, **NEEDED)
# Of prepare.
RUNNER = option("--runner", "of Apache Beam; default: processes here", default="")
OF_RUNNER = option("options", "of the runner, after --", nargs="*", metavar="OPTION")
# Of inspect.
STEP = option("--step", "the step whose batch is shown", type=int)
ROWS = option("--rows", "rows to show; default: 4", type=positive)
STEPS = option(
    "--steps", "the steps A to B - 1, whose batches are saved", type=interval, metavar="A:B"
)
SAVE = option("--save", "to save batches to, with --steps", type=place, metavar="DIR")
# Of benchmark and plan.
PHASE = option("--phase", "of the config; default: all, one by one", metavar="NAME")
BATCHES = option(
    "--batches",
    "saved batches, or synthetic; default: the config's, or synthetic",
    type=named,
    metavar="DIR",
)
TIMED = option("--steps", "timed steps; default: %(default)s", type=positive, default=10)
PROFILE = option("--profile", "for traces of the timed steps", type=place, metavar="DIR")
TOPOLOGY = option(
    "--topology",
    "as v5e:4x4, or v5litepod-16; v5e, all: ranked, extrapolated",
    metavar="NAME",
    **NEEDED,
)
PRICE = option("--price", "of a chip for an hour; also as v5e=1.2,v6e=2.7", type=prices, default={})
SEARCH = option(
    "--search", "try mesh shapes, micro-batches and remat, extrapolated", action="store_true"
)
# Of import and export.
WORDS = option("--add-words", "new words, one a line", type=place, metavar="FILE")
FORMATS = ("huggingface", "google")
FORMAT = option("--format", "default: %(default)s", choices=FORMATS, default=FORMATS[0])
ABOUT = [
    option("--name", "of the model, in its card; default: the run's", default=""),
    option("--license", "of the weights, as apache-2.0", default="", metavar="ID"),
    option("--data-license", "of the text, as cc-by-sa-4.0", default="", metavar="ID"),
    option("--language", "of the text, as en", default="", metavar="CODE"),
]
# Of predict.
TOP = option("--top", "candidates a mask", type=positive, default=5)
TEXTS = option("texts", "with one or more [MASK]", nargs="+", metavar="TEXT")

OPTIONS = {
    "prepare": [CONFIG, RUNNER, OF_RUNNER, AS_JSON],
    "pretrain": [CONFIG, RUN],
    "config": [CONFIG, AS_JSON],
    "inspect": [CONFIG, STEP, ROWS, STEPS, SAVE, AS_JSON],
    "benchmark": [CONFIG, PHASE, BATCHES, TIMED, PROFILE, AS_JSON],
    "plan": [CONFIG, TOPOLOGY, PRICE, PHASE, SEARCH, AS_JSON],
    "status": [RUN, AS_JSON],
    "evaluate": [MEASURED, MODELS, OF_TEXT, AS_JSON],
    "verify": [STORE, RUN_FILES, AS_JSON],
    "import": [SOURCE, RUN, OF_RUN_TO_COME, WORDS, AS_JSON],
    "export": [RUN, OUTPUT, FORMAT, *ABOUT, AS_JSON],
    "predict": [MODEL, TOP, TEXTS, AS_JSON],
    "compare": [*PAIR, AS_JSON],
}


# --- The command line -----------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """One whose errors are a line, as all others."""

    def error(self, message: str):
        raise BadInput(f"{message}; see {self.prog} --help")


def parser(commands: dict[str, Callable]) -> Parser:
    """Of these commands, each of OPTIONS; what is parsed has the function as its `command`, whose docstring is its
    help."""
    top = Parser(
        "bert-jax",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=__version__)
    parsers = top.add_subparsers(required=True, metavar="COMMAND")
    for name, function in commands.items():
        command = parsers.add_parser(name, help=function.__doc__, description=function.__doc__)
        for one in OPTIONS[name]:
            command.add_argument(one.name, **one.settings)
        command.set_defaults(command=function)
    return top


def split_overrides(words: list[str]) -> tuple[list[str], list[str]]:
    """Takes --config.KEY=VALUE and --config.KEY VALUE out of the words of a command line."""
    rest, overrides = [], []
    remaining = iter(words)
    for word in remaining:
        if word == "--":
            rest += [word, *remaining]
        elif not word.startswith("--config."):
            rest.append(word)
        elif "=" in word:
            overrides.append(word.removeprefix("--config."))
        else:
            overrides.append(f"{word.removeprefix('--config.')}={next(remaining, '')}")
    return rest, overrides
