"""`plan`: estimates memory, time and cost of a run on a TPU slice or on GPUs, without one."""

import os

from bert_jax import cli
from bert_jax.errors import BadInput

NAME = "a slice, such as v5e:4x4 or v5litepod-16, or GPUs, such as h100:8; v5e or all: a table of slices"
OPTIONS = [
    cli.CONFIG,
    cli.option("--topology", NAME, metavar="NAME", **cli.REQUIRED),
    cli.option("--price", "of a chip-hour or GPU-hour", type=cli.amount),
    cli.option(
        "--tokens",
        "real tokens of the run, such as 3e9, instead of the config's steps; phases keep their shares",
        type=cli.amount,
        metavar="N",
    ),
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
    from bert_jax.planning import compiler, describe, plan

    is_table = options.topology in (plan.ALL, *CHIPS)
    if options.search and is_table:
        raise BadInput(f"--search: needs one slice or GPUs, not --topology {options.topology}")
    if options.price and (options.search or options.topology == plan.ALL):
        raise BadInput("--price: needs one kind of chip, and cannot be used with --search")
    try:
        job = plan.make_job(config, options.phase, cli.log, options.tokens)
        if options.search:
            values = plan.plan_search(job, options.topology)
            return cli.show(options, values, describe.describe_search(values))
        if is_table:
            values = plan.plan_all(job, options.topology, options.price)
            return cli.show(options, values, describe.describe_table(values))
        values = plan.plan(job, options.topology, options.price)
        cli.show(options, values, describe.describe(values))
        plan.check_fits(values)
        return 0
    finally:
        compiler.stop()
