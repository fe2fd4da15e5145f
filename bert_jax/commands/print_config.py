"""`config`: prints every resolved key, marks those that differ from base, and counts parameters and FLOPs."""

import os

from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs

OPTIONS = [cli.CONFIG, cli.AS_JSON]


def run(options, overrides) -> int:
    os.environ["JAX_PLATFORMS"] = "cpu"  # before JAX is imported: shapes alone are computed
    config = cli.load_config(options, overrides)
    from bert_jax.planning import plan

    counts = plan.expected_counts(config, cli.log)
    lines = describe(config)
    lines.append(f"{counts['parameters']:,} parameters, {counts['body_parameters']:,} in the body")
    for phase, flops in counts["flops_per_token"].items():
        lines.append(f"phase {phase}: {flops:.4g} FLOPs per token of a training step")
    return cli.show(options, config.to_dict() | {"counts": counts}, "\n".join(lines))


def describe(config: ConfigDict) -> list[str]:
    """Returns a line for every resolved key; a key that differs from base is marked with the value in base."""
    changed = configs.changes(config)
    lines = []
    for key, value in configs.flatten(config).items():
        line = f"{key} = {value!r}"
        if key in changed:
            line += f"    # base: {changed[key][0]!r}"
        lines.append(line)
    return lines
