"""Checks a command of bert-jax without running it, as launch/tpu.sh does before it creates a slice.

usage: python launch/check_command.py TYPE COMMAND [ARGUMENT ...]

TYPE is that of the slice. The current directory has the files that are copied to the workers. Prints one line and exits
with code 2 if an option, a key, or the workdir is wrong, or if a worker would not find a file that the command needs.
"""

import os
import re
import sys

from bert_jax import cli, config
from bert_jax.checks import split_list
from bert_jax.data import download
from bert_jax.data.preparation import corpus
from bert_jax.errors import BadInput, Unavailable, Unfinished
from bert_jax.storage import remote

# Keys with a path ('': none), an address or the name of a data set.
PATHS = ("batches", "continue_from", "init_from", "task.data", "tokenizer.path")


def check_relative(text: str) -> None:
    if text.startswith(("/", "~")):
        raise BadInput(f"{text}: a path of this machine; expected one in the checkout, or gs://...")


def check_config(values: config.ConfigDict) -> None:
    for key, value in config.flatten(values).items():
        for part in split_list(str(value)):
            check_relative(part)
        if key == "continue_from":
            value = value.partition("@")[0]
        if key in PATHS and value and ":" not in value and not os.path.exists(value):
            raise BadInput(f"config.{key}={value}: does not exist")


def check_text(values: config.ConfigDict, chips: int) -> None:
    """Checks that the workers have a store, or that the one host of a slice of up to 8 chips can prepare it."""
    if values.batches or remote.is_address(values.store) or download.exists(values.store):
        return
    if chips > 8:
        raise BadInput(f"config.store={values.store}: expected gs://... for several hosts")
    corpus.open_sources(values)


def check(chips: int, arguments: list[str]) -> None:
    words, overrides = cli.split_overrides(arguments)
    options = cli.parser(words[:1]).parse_args(words)
    if options.command not in ("pretrain", "finetune", "benchmark"):
        raise BadInput(f"{options.command}: expected pretrain, finetune or benchmark")
    check_relative(options.config)
    if options.command == "finetune":
        for trial in cli.load_command("finetune").trials(options.config, options.search, overrides):
            check_config(trial.config)
    else:
        values = config.load(options.config, overrides)
        check_config(values)
        if options.command == "pretrain":
            check_text(values, chips)
    if options.command != "benchmark" and not re.match("gs://[^/]", str(options.workdir)):
        raise BadInput(f"--workdir {options.workdir}: expected gs://...; a slice loses its disks")


try:
    check(int(sys.argv[1].rpartition("-")[2]), sys.argv[2:])
except (BadInput, Unavailable, Unfinished) as error:
    where = "(checked with the files that are copied to the workers)"
    cli.print_error(" ".join([*str(error).splitlines(), where]))
    sys.exit(2)
except SystemExit:  # --help
    sys.exit(2)
