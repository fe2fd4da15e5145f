"""`report`: writes curves, times, samples and the config of runs as one HTML file."""

from contextlib import ExitStack

from bert_jax import cli
from bert_jax.pages import report
from bert_jax.runs import workdir

OPTIONS = [
    cli.location(
        "--workdir", "a run; may be repeated, to compare", action="append", **cli.REQUIRED
    ),
    cli.option("--output", "HTML file to write", type=cli.to_output, **cli.REQUIRED),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    with ExitStack() as opened:
        runs = [opened.enter_context(workdir.opened(name)) for name in options.workdir]
        values = report.write(runs, options.output)
    return cli.show(options, values, f"{options.output}: the report of {', '.join(values)}")
