"""`status`: what a run is doing."""

from bert_jax import cli
from bert_jax.runs import status

OPTIONS = [cli.RUN, cli.AS_JSON]


def run(options, overrides) -> int:
    cli.refuse(overrides)
    values = status.status(options.workdir)
    return cli.show(options, values, status.describe(values))
