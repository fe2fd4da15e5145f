"""`prepare`: converts raw text to a token store, and reports on the text."""

from bert_jax import cli

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

    engine = beam.open_runner(options.runner, options.options)
    values = prepare.prepare(config, cli.log_progress, engine)
    lines = report.describe(values, config.store, config.tokenizer.path)
    if "seconds" in values:
        lines.append(f"{values['seconds']:.1f} s, {values['megabytes_per_second']:.1f} MB/s")
    return cli.show(options, values, "\n".join(lines))
