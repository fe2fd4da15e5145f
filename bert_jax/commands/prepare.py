"""`prepare`: converts raw text to a token store, and reports on the text."""

from bert_jax import cli
from bert_jax.errors import BadInput

OPTIONS = [
    cli.CONFIG,
    cli.option("--runner", "runner of Apache Beam; default: local processes", default=""),
    cli.option("options", "options of the runner, after --", nargs="*", metavar="OPTION"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    from bert_jax.data import prepare, report
    from bert_jax.data.preparation import beam

    if options.options and not options.runner:
        hint = "quote a glob, as in --config.corpus.source='text/*.txt'"
        raise BadInput(f"prepare: {' '.join(options.options)}: not an option; {hint}")
    engine = beam.open_runner(options.runner, options.options)
    values = prepare.prepare(config, cli.log_progress, engine)
    lines = report.describe(values, options.config, overrides)
    if "seconds" in values:
        speed = f"{values['seconds']:.1f} s, {values['megabytes_per_second']:.1f} MB/s"
        lines.append(f"text read and store written: {speed}")
    return cli.show(options, values, "\n".join(lines))
