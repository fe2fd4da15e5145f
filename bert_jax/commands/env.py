"""`env`: prints environment variables for a faster run on a CPU as shell exports: `eval "$(bert-jax env)"`.

The commands that train or compute set them themselves; a notebook or another program needs them before it starts.
"""

from bert_jax import cli
from bert_jax.runs import malloc

OPTIONS = []


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    with cli.report_write_errors("standard output"):
        for name, value in malloc.missing_variables().items():
            print(f"export {name}={value}", flush=True)
    return 0
