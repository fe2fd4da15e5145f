"""`status`: prints the state of a run, and on a terminal draws its loss."""

import sys

from bert_jax import cli
from bert_jax.runs import status, workdir

OPTIONS = [cli.WORKDIR, cli.AS_JSON]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    is_drawn = sys.stdout.isatty()
    files = ["status.json", "metrics.jsonl"] if is_drawn else ["status.json"]
    with workdir.opened(options.workdir, *files) as run:
        values = status.status(run.directory, run.checkpoints)
        text = status.describe(values)
        if is_drawn:
            text += "\n" + status.draw_losses(run.directory / "metrics.jsonl")
    return cli.show(options, values, text.rstrip())
