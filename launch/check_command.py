"""Checks a command of bert-jax without running it, as launch/tpu.sh does before it creates a slice: its options, its
config, the files that this names, and that its workdir is in a bucket. The current directory has the files that are
copied to the workers. Prints one line and exits with code 2 if something is wrong."""

import os
import sys

from bert_jax import cli, config
from bert_jax.errors import BadInput
from bert_jax.storage import remote


def check_config(name: str, overrides: list[str]) -> None:
    values = config.load(name, overrides)
    for path in filter(None, (values.tokenizer.path, values.init_from)):
        if not remote.is_address(path) and (os.path.isabs(path) or not os.path.exists(path)):
            raise BadInput(f"{path}: in the config, but not among the files that are copied")


def check(arguments: list[str]) -> None:
    words, overrides = cli.split_overrides(arguments)
    options = cli.parser(words[:1]).parse_args(words)
    if "search" in options:  # finetune
        for trial in cli.load_command("finetune").trials(options.config, options.search, overrides):
            check_config(trial.config, trial.overrides)
    elif "config" in options:
        check_config(options.config, overrides)
    workdir = str(getattr(options, "workdir", "gs://"))
    if not workdir.startswith("gs://"):
        raise BadInput(f"--workdir {workdir}: expected gs://...; a slice is deleted with its disks")


try:
    check(sys.argv[1:])
except BadInput as error:
    cli.print_error(" ".join(str(error).splitlines()))
    sys.exit(2)
except SystemExit:  # --help
    sys.exit(2)
