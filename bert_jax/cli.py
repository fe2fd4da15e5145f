"""The command line: arguments -> config -> one call. Each command of commands/ declares its own options."""

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from bert_jax import __version__
from bert_jax.errors import LOST, BadInput, Missing, Unfinished
from bert_jax.storage.remote import address

DESCRIPTION = """BERT pretraining in JAX: raw text in, a downstream-ready BERT out.

Any key of a config can be set with --config.KEY=VALUE, for example --config.train.micro_batches=4.
"""
EXIT_CODES = """exit codes:
    0  done
    1  failed: something has to be mended first
    2  bad input
   75  preempted after saving, or before the first step: start again
   76  another process of the run, a device or an address was lost or is missing, or another process trains in the
       workdir: start again
  130  interrupted, after saving where anything was trained, unless interrupted twice
  134  aborted by JAX, because another process of the run was lost: start again
  137  killed by others: start again
  142  stuck, ended at one of its own deadlines (config.timeouts): start again
  143  terminated where nothing is saved, as in its first seconds: start again
launch/again.sh starts a command again.
"""
# The help of each command. Its file in commands/ has its name, unless FILES names another.
COMMANDS = {
    "prepare": "Turn raw text into a token store, once.",
    "pretrain": "Train, from the newest checkpoint of the workdir if there is one.",
    "config": "Print every resolved key, and what differs from base.",
    "inspect": "Show the batch of a step (rows, masks, real tokens, pair ratio, SHA-256), or save the batches of many.",
    "benchmark": "Time the training step of each phase on the devices that are here; needs no text and no workdir.",
    "plan": "Say what a run needs, takes and costs on a TPU slice, without one.",
    "status": "Say what a run is doing.",
    "evaluate": "Measure a run on its held-out rows, or several models of any vocabularies on the same held-out text.",
    "verify": "Say all that is wrong with a store, or with a run.",
    "import": "Make a run of a model that others made, to continue or to fine-tune.",
    "export": "Write a run's newest checkpoint for Hugging Face transformers, or as a TensorFlow checkpoint.",
    "predict": "Fill in [MASK] in texts.",
    "compare": "Say in what two models differ: settings, tensors, vocabulary, outputs.",
    "env": 'Print what a shell sets before a run: eval "$(bert-jax env)".',
}
LONGEST = 900  # characters of a complaint
FILES = {"config": "print_config", "inspect": "inspect_batch", "import": "import_model"}


def main(words: list[str] | None = None) -> int:
    words, overrides = split_overrides(sys.argv[1:] if words is None else words)
    # TensorFlow announces itself at import in several lines; its errors stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a character gets its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = parser(words[:1]).parse_args(words)
        check_json(options)
        return options.run(options, overrides)
    except BadInput as error:
        # Names from others' files may hold line breaks.
        complain(" ".join(str(error).splitlines()))
        return 2
    except (FloatingPointError, Missing, Unfinished) as error:
        complain(str(error))
        return LOST if isinstance(error, Missing) else 1
    except OSError as error:
        complain(f"{error.filename or type(error).__name__}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        return 130


def complain(text: str) -> None:
    """A line on standard error, without the middle of what is too long to be read."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"bert-jax: {text}", file=sys.stderr)


def load_config(options, overrides):
    from bert_jax import config

    return config.load(options.config, overrides)


def refuse(overrides) -> None:
    if overrides:
        raise BadInput(f"--config.{overrides[0]}: this command takes no config")


# --- Options --------------------------------------------------------------------------------------


class Option(NamedTuple):
    name: str
    settings: dict[str, Any]  # of argparse


def option(name: str, help: str, **settings) -> Option:
    return Option(name, settings | dict(help=help))


def place(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, not nothing")
    return Path(reachable(text))


def reachable(text: str) -> str:
    """A name that may be of a file: neither too long nor behind a directory that is closed to this user."""
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    return text


def run_place(text: str) -> str | Path:
    """A directory, or an address."""
    return address(text) if text else place(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1")
    return int(text)


NEEDED = dict(required=True)
AS_JSON = option(
    "--json", "also write results here; - is standard output", metavar="FILE", type=reachable
)
CONFIG = option(
    "--config", "a shipped config (demo), a .py file, or a config.json", type=reachable, **NEEDED
)
RUN = option("--workdir", "directory or address of the run", type=run_place, **NEEDED)
PHASE = option("--phase", "of the config; default: all, one by one", metavar="NAME")


# --- The command line -----------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """One whose errors are a line, as all others."""

    def error(self, message: str):
        raise BadInput(f"{message}; see {self.prog} --help")


def load_command(name: str) -> ModuleType:
    """The file of a command, which may import JAX or TensorFlow: OPTIONS, and run(options, overrides) -> exit code."""
    return importlib.import_module(f"bert_jax.commands.{FILES.get(name, name)}")


def parser(names: list[str]) -> Parser:
    """Of all commands; only those of `names` are loaded and have their options."""
    top = Parser(
        "bert-jax",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=__version__)
    parsers = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, text in COMMANDS.items():
        command = parsers.add_parser(name, help=text, description=text)
        if name in names:
            module = load_command(name)
            for one in module.OPTIONS:
                command.add_argument(one.name, **one.settings)
            command.set_defaults(run=module.run)
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


# --- Answers: text for people, and JSON where --json says -----------------------------------------


def check_json(options) -> None:
    """Before hours of work, not after them."""
    if getattr(options, "json", None) in (None, "-"):
        return
    path = Path(options.json).absolute()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"--json {options.json}: cannot be written")


def show(options, values, text: str) -> int:
    """Prints results for people, and as JSON where --json says; numbers that are not finite become null."""
    encoded = json.dumps(finite(values), indent=2, allow_nan=False)
    if options.json not in (None, "-"):
        with writing(f"--json {options.json}"):
            Path(options.json).write_text(encoded + "\n")
    with writing("standard output"):
        print(encoded if options.json == "-" else text, flush=True)
    return 0


@contextlib.contextmanager
def writing(name: str):
    """What cannot be written, as on a full disk, is told in a line; not that the reader has gone, as with `| head`."""
    try:
        yield
    except BrokenPipeError:
        pass
    except OSError as error:
        raise Unfinished(f"{name}: {error.strerror}") from None


def finite(values):
    if isinstance(values, dict):
        return {key: finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def tell(text: str) -> None:
    """Progress, apart from the results on standard output."""
    print(text, file=sys.stderr, flush=True)


def silent(text: str) -> None:
    """What `tell` is in processes that do not speak."""
