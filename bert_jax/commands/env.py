"""`env`: prints environment variables for a faster run on a CPU or GPU as shell exports: `eval "$(bert-jax env)"`.

The commands that train or compute set them themselves; a notebook or another program needs them before it starts.
"""

import shlex

from bert_jax import cli
from bert_jax.runs import environment

OPTIONS = []


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    variables = environment.malloc_variables() | environment.gpu_variables()
    with cli.report_write_errors("standard output"):
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}", flush=True)
    return 0
