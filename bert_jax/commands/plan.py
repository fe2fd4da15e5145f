"""`plan`: estimates memory, time and cost of a run on a TPU slice or on GPUs, without one."""

import math
import os

from bert_jax import cli
from bert_jax.errors import BadInput

NAME = "a slice, such as v5e:4x4 or v5litepod-16, or GPUs, such as h100:8; v5e or all: a table of slices"
OPTIONS = [
    cli.CONFIG,
    cli.option("--topology", NAME, metavar="NAME", **cli.REQUIRED),
    cli.option("--price", "of a chip-hour or GPU-hour", type=float),
    cli.PHASE,
    cli.option(
        "--search",
        "try settings of micro-batches, remat, fsdp, on GPUs of attention",
        action="store_true",
    ),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    # Set before JAX is imported: its compilers are used, and there are no such devices.
    os.environ["JAX_PLATFORMS"] = "cpu"
    config = cli.load_config(options, overrides)
    from bert_jax.parallel.chips import CHIPS
    from bert_jax.planning import compilation, describe, plan

    is_table = options.topology in (plan.ALL, *CHIPS)
    if options.search and is_table:
        raise BadInput(f"--search: needs one slice or GPUs, not --topology {options.topology}")
    if options.price is not None and not 0 <= options.price < math.inf:
        raise BadInput(f"--price {options.price}: expected a number >= 0")
    if options.price is not None and (options.search or options.topology == plan.ALL):
        raise BadInput("--price: needs one kind of chip, and cannot be used with --search")
    try:
        if options.search:
            values = plan.plan_search(config, options.topology, options.phase, cli.log_progress)
            return cli.show(options, values, describe.describe_search(values))
        arguments = config, options.topology, options.price, options.phase, cli.log_progress
        if is_table:
            values = plan.plan_all(*arguments)
            return cli.show(options, values, describe.describe_table(values))
        values = plan.plan(*arguments)
        cli.show(options, values, describe.describe(values))
        plan.check_fits(values)
        return 0
    finally:
        compilation.stop_compiler()
