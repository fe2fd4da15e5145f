"""`config`: prints every resolved key, and marks those that differ from base."""

from bert_jax import cli, config

OPTIONS = [cli.CONFIG, cli.AS_JSON]


def run(options, overrides) -> int:
    values = cli.load_config(options, overrides)
    return cli.show(options, values.to_dict(), config.describe(values))
