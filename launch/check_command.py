"""Checks a command of bert-jax without running it, as launch/tpu.sh does before it creates a slice: its options, its
config, and that its workdir is in a bucket. Prints one line and exits with code 2 if something is wrong."""

import sys

from bert_jax import cli, config
from bert_jax.errors import BadInput

words, overrides = cli.split_overrides(sys.argv[1:])
try:
    options = cli.parser(words[:1]).parse_args(words)
    if "search" in options:  # finetune
        for trial in cli.load_command("finetune").trials(options.config, options.search, overrides):
            config.load(trial.config, trial.overrides)
    elif "config" in options:
        config.load(options.config, overrides)
    workdir = str(getattr(options, "workdir", "gs://"))
    if not workdir.startswith("gs://"):
        raise BadInput(f"--workdir {workdir}: expected gs://...; a slice is deleted with its disks")
except BadInput as error:
    cli.print_error(" ".join(str(error).splitlines()))
    sys.exit(2)
except SystemExit:  # --help
    sys.exit(2)
