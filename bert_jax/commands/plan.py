"""`plan`: what a run needs, takes and costs on a TPU slice, without one."""

import argparse
import math
import os

from bert_jax import cli
from bert_jax.errors import BadInput


def price(text: str) -> float:
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 0")
    return float(text)


NAME = "as v5e:4x4, or v5litepod-16; v5e, all: a table, by hours"
OPTIONS = [
    cli.CONFIG,
    cli.option("--topology", NAME, metavar="NAME", **cli.NEEDED),
    cli.option("--price", "of a chip for an hour", type=price),
    cli.PHASE,
    cli.option("--search", "try micro-batches, remat and fsdp", action="store_true"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    # Before anything imports JAX: libtpu is here to compile, and has no devices.
    os.environ["JAX_PLATFORMS"] = "cpu"
    config = cli.load_config(options, overrides)
    from bert_jax.parallel.chips import CHIPS
    from bert_jax.planning import describe, plan

    is_table = options.topology in (plan.ALL, *CHIPS)
    if options.search and is_table:
        raise BadInput(f"--search: is of one slice, not of --topology {options.topology}")
    if options.price is not None and (options.search or options.topology == plan.ALL):
        raise BadInput("--price: is of one kind of chip, and not of --search, which is by seconds")
    if options.search:
        values = plan.plan_search(config, options.topology, options.phase, cli.tell)
        return cli.show(options, values, describe.describe_search(values))
    make = plan.plan_all if is_table else plan.plan
    values = make(config, options.topology, options.price, options.phase, cli.tell)
    text = describe.describe_table(values) if is_table else describe.describe(values)
    code = cli.show(options, values, text)
    if not is_table:
        plan.check_fits(values)
    return code
