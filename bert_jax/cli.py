"""The command line: arguments -> config -> one call. Each command of commands/ declares its own options."""

import argparse
import contextlib
import importlib
import itertools
import math
import os
import re
import sys
from pathlib import Path
from types import ModuleType

from bert_jax.errors import LOST, BadInput, Unavailable, Unfinished, log
from bert_jax.storage import atomic, json_file
from bert_jax.storage.remote import address

DESCRIPTION = """Pretraining of BERT, GPT and relatives in JAX: raw text in, a network for downstream tasks out.

Any key of a config can be set with --config.KEY=VALUE, for example --config.train.micro_batches=4."""
EXIT_CODES = """exit codes:
    0  done
    1  failed: fix the reported problem before a restart
    2  bad input
   75  preempted, after saving or before the first step: restart
   76  another process, a device or a bucket is unreachable, or another process trains in the workdir: restart
  130  interrupted; trained steps are saved, unless it was interrupted twice
  134  aborted by JAX, because another process of the run was lost: restart
  137  killed, as by the kernel when memory runs out: restart
  142  stuck, and ended by its own timeout (config.timeouts): restart
  143  terminated before there was anything to save: restart
launch/again.sh restarts a command."""
# {command: help}. A command is in the file of its name in commands/, or in the file that FILES gives.
COMMANDS = {
    "prepare": "Convert raw text to a token store.",
    "pretrain": "Train, or resume from the newest checkpoint of the workdir.",
    "finetune": "Train a run or a model on a task with labelled examples.",
    "config": "Print every resolved key, and mark those that differ from base.",
    "inspect": "Show the batch of a step (rows, masks, real tokens, pair ratio, SHA-256), or save many batches.",
    "benchmark": "Time the training step of each phase on this machine's devices; needs no text and no workdir.",
    "plan": "Estimate memory, time and cost of a run on TPU slices or GPUs, without one.",
    "status": "Print the state of a run.",
    "report": "Write curves, times, samples and config of runs as one HTML file.",
    "evaluate": "Evaluate a run on its held-out rows, or models with any vocabularies on the same text.",
    "verify": "Check the files of a store or a run, and list all problems.",
    "import": "Create a run from a local Hugging Face model or TensorFlow checkpoint, to train it further.",
    "average": "Write the mean of checkpoints, of one run or of several.",
    "export": "Write a run's newest checkpoint for Hugging Face transformers, or as a TensorFlow checkpoint.",
    "predict": "Predict the pieces at [MASK], the labels, a translation, or how texts continue.",
    "score": "Compute the log-probabilities of sentences, or the accuracy on minimal pairs.",
    "features": "Write vectors of the tokens or the lines of a text file.",
    "attention": "Write a page of what each token of a text reads, in all layers and heads.",
    "env": 'Print environment variables for faster steps of other programs on CPUs: eval "$(bert-jax env)".',
}
MAX_MESSAGE = 900  # characters of an error message
FILES = {
    "config": "print_config",
    "inspect": "inspect_batch",
    "import": "import_model",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command. Returns its exit code; errors become one line on standard error.

    arguments: default: those of the process.
    """
    # TensorFlow prints several lines at import; these settings leave only its errors.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    with contextlib.suppress(AttributeError):  # not a text stream
        # Characters that the terminal's encoding lacks are printed as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
        options = parser(arguments[:1]).parse_args(arguments)
        check_outputs(vars(options))
        return options.run(options, overrides)
    except BadInput as error:
        # Names in input files may contain line breaks.
        print_error(" ".join(str(error).splitlines()))
        return 2
    except (FloatingPointError, Unavailable, Unfinished) as error:
        print_error(str(error))
        return LOST if isinstance(error, Unavailable) else 1
    except OSError as error:
        print_error(f"{error.filename or type(error).__name__}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        print_error("interrupted")
        return 130


def print_error(text: str) -> None:
    """Prints an error on standard error. Cuts the middle out of a long one."""
    if len(text) > MAX_MESSAGE:
        text = f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 2 :]}"
    with contextlib.suppress(OSError):
        log(f"bert-jax: {text}")


def load_config(options, overrides):
    """Returns the resolved config of --config with the overrides."""
    from bert_jax import config

    return config.load(options.config, overrides, log)


def refuse_overrides(overrides) -> None:
    """Raises BadInput for overrides of a command without a config."""
    if overrides:
        raise BadInput(f"--config.{overrides[0]}: this command takes no config")


# --- Options --------------------------------------------------------------------------------------


def option(name: str, help: str, **settings) -> tuple[str, dict]:
    """Returns an option of a command: its name, or several with spaces between them, and keyword arguments of
    argparse's add_argument."""
    return name, settings | dict(help=help)


def path(name: str, help: str, **settings) -> tuple[str, dict]:
    """Returns an option whose value is a local path."""
    return option(name, help, type=to_path, **settings)


def location(name: str, help: str, **settings) -> tuple[str, dict]:
    """Returns an option whose value is a directory or an address."""
    return option(name, help, type=to_address, **settings)


def to_path(text: str) -> Path:
    """Converts the value of an option to a path."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, not an empty string")
    return Path(text)


def to_address(text: str) -> str | Path:
    """Converts the value of an option to a directory or an address."""
    return address(text) if text else to_path(text)


def to_output(text: str) -> Path:
    """Converts the value of an option to the path of a file to write; an existing one is replaced."""
    path = to_path(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: expected a file in an existing directory")
    return path


def check_outputs(options: dict) -> None:
    """Raises BadInput if results would replace a file that another option names."""
    files = []
    for name, values in options.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str | Path) and os.path.isfile(value):
                files.append((name, value))
    for (name, path), (other, value) in itertools.permutations(files, 2):
        if name in ("output", "json") and other != name and os.path.samefile(path, value):
            raise BadInput(f"--{name} {path}: is also named by --{other}")


def positive(text: str) -> int:
    """Converts the value of an option to a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a positive integer")
    return int(text)


def amount(text: str) -> float:
    """Converts the value of an option to a positive number."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text}: expected a number > 0")


REQUIRED = dict(required=True)
AS_JSON = option(
    "--json",
    "also write JSON to FILE; - is standard output",
    metavar="FILE",
    type=lambda text: str(to_output(text)),
)
CONFIG = option("--config", "a shipped config (demo), a .py file, or a config.json", **REQUIRED)
MODEL = location("--model --workdir", "a run, or a model of another program", **REQUIRED)
WORKDIR = location("--workdir", "directory or address of the run", **REQUIRED)
PHASE = option("--phase", "a phase of the config; default: all, one by one", metavar="NAME")


# --- The command line -----------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser that raises BadInput, so that its errors are one line like all others."""

    def error(self, message: str):
        raise BadInput(f"{message}; see {self.prog} --help")


def versions() -> str:
    """Returns the versions that matter for a bug report."""
    from bert_jax.runs import run_info

    return ", ".join(f"{name} {number}" for name, number in run_info.versions().items())


def load_command(name: str) -> ModuleType:
    """Imports the file of a command, with JAX or TensorFlow if it needs them.

    It has OPTIONS and run(options, overrides) -> exit code.
    """
    return importlib.import_module(f"bert_jax.commands.{FILES.get(name, name)}")


def parser(names: list[str]) -> Parser:
    """Returns the parser of all commands. Only the commands in `names` are imported and have their options."""
    top = Parser(
        "bert-jax",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version="--version" in names and versions())
    parsers = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, text in COMMANDS.items():
        command = parsers.add_parser(name, help=text, description=text)
        # A slice as -4: is a value; argparse takes only numbers for values that begin with a minus.
        command._negative_number_matcher = re.compile(r"-\d")
        if name in names:
            module = load_command(name)
            for option, settings in module.OPTIONS:
                command.add_argument(*option.split(), **settings)
            command.set_defaults(run=module.run)
    return top


def split_overrides(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into other arguments and overrides: --config.KEY=VALUE or --config.KEY VALUE.

    Returns the overrides as KEY=VALUE, in their order; of two values of a key, the last one is used.
    """
    others = []
    overrides = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            others += [argument, *remaining]
        elif argument.startswith("--config."):
            parts = [argument.removeprefix("--config.")]
            if "=" not in argument:
                parts += itertools.islice(remaining, 1)
            overrides.append("=".join(parts))
        else:
            others.append(argument)
    return others, overrides


# --- Results: text, and JSON with --json ----------------------------------------------------------


def show(options, values, text: str) -> int:
    """Prints the text, on standard error if standard output has --output, and writes the values as JSON where --json
    says; NaN and infinity become null. Returns 0."""
    stream = sys.stdout
    if getattr(options, "output", None) == atomic.STDOUT:
        stream = sys.stderr
    encoded = json_file.encode(values, indent=2)
    # A closed pipe is no error here, as with `| head`.
    with report_write_errors("standard output"), contextlib.suppress(BrokenPipeError):
        print(encoded if options.json == "-" else text, file=stream, flush=True)
    if options.json not in (None, "-"):
        with report_write_errors(f"--json {options.json}"):
            atomic.write(Path(options.json), encoded + "\n")
    return 0


@contextlib.contextmanager
def report_write_errors(name: str):
    """Raises Unfinished if output cannot be written, as on a full disk."""
    try:
        yield
    except OSError as error:
        raise Unfinished(f"{name}: {error.strerror}") from None
