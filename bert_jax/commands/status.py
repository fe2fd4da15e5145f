"""`status`: prints the state of a run."""

from bert_jax import cli
from bert_jax.runs import status, workdir

OPTIONS = [cli.WORKDIR, cli.AS_JSON]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    with workdir.opened(options.workdir, "status.json") as run:
        values = status.status(run.directory, run.checkpoints)
    return cli.show(options, values, status.describe(values))
