"""`plan`: what a run needs, takes and costs on a TPU slice, without one."""

import argparse
import math
import os

from bert_jax import cli
from bert_jax.errors import BadInput


def prices(text: str) -> dict[str, float]:
    """{kind of chip, or "" for all: price} of 1.2 or of v5e=1.2,v6e=2.7."""
    found = {}
    for part in text.split(","):
        kind, _, number = part.rpartition("=")
        twice = kind in found
        try:
            found[kind] = float(number)
        except ValueError:
            found[kind] = math.nan
        if twice or not 0 <= found[kind] < math.inf:
            raise argparse.ArgumentTypeError(
                f"{text}: expected a number from 0, or v5e=1.2,v6e=2.7"
            )
    return found


NAME = "as v5e:4x4, or v5litepod-16; v5e, all: a table, by hours"
PRICE = "of a chip for an hour; also as v5e=1.2,v6e=2.7"
SEARCH = "try micro-batches, remat and fsdp"
OPTIONS = [
    cli.CONFIG,
    cli.option("--topology", NAME, metavar="NAME", **cli.NEEDED),
    cli.option("--price", PRICE, type=prices, default={}),
    cli.PHASE,
    cli.option("--search", SEARCH, action="store_true"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    # Before anything imports JAX: libtpu is here to compile, and has no devices.
    os.environ["JAX_PLATFORMS"] = "cpu"
    config = cli.load_config(options, overrides)
    from bert_jax.parallel.chips import CHIPS
    from bert_jax.planning import describe, plan

    if unknown := options.price.keys() - {"", *CHIPS}:
        raise BadInput(f"--price {min(unknown)}: no chip; they are {', '.join(CHIPS)}")
    if options.search and options.price:
        raise BadInput("--price: not of --search, which ranks by seconds")
    if options.topology in (plan.ALL, *CHIPS):
        if options.search:
            raise BadInput(f"--search: is of one slice, not of --topology {options.topology}")
        values = plan.plan_all(config, options.topology, options.price, options.phase, cli.tell)
        return cli.show(options, values, describe.describe_all(values))
    if options.search:
        values = plan.plan_search(config, options.topology, options.phase, cli.tell)
        return cli.show(options, values, describe.describe_search(values))
    values = plan.plan(config, options.topology, options.price, options.phase, cli.tell)
    code = cli.show(options, values, describe.describe(values))
    plan.check_fits(values)
    return code
