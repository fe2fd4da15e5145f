"""`config`: prints every resolved key, and marks those that differ from base."""

from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs

OPTIONS = [cli.CONFIG, cli.AS_JSON]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    return cli.show(options, config.to_dict(), describe(config))


def describe(config: ConfigDict) -> str:
    """Returns every resolved key, one per line; a key that differs from base is marked with the value in base."""
    changed = configs.changes(config)
    lines = []
    for key, value in configs.flatten(config).items():
        line = f"{key} = {value!r}"
        if key in changed:
            line += f"    # base: {changed[key][0]!r}"
        lines.append(line)
    return "\n".join(lines)
