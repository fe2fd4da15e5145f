"""`prepare`: converts raw text, or the examples of a task, to a token store, and reports on it."""

import jax

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.checks import require
from bert_jax.convert import finetuning
from bert_jax.errors import BadInput, one_line
from bert_jax.parallel import chips
from bert_jax.runs import workdir
from bert_jax.tasks.supervised import example_report, examples

TOKENS = 8192  # of a timed step on a device, at most: few enough to take seconds
STEPS = 5  # that are timed
OPTIONS = [
    cli.CONFIG,
    cli.option("--runner", "runner of Apache Beam; default: local processes", default=""),
    cli.option("options", "options of the runner, after --", nargs="*", metavar="OPTION"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    if examples.of(config):
        require(config.store, "store", config, "expected a directory")
        if config.init_from:
            config = finetuning.resolve(config, overrides)
        values = example_report.build(config, examples.open_or_build(config))
        return cli.show(options, values, "\n".join(example_report.describe(values)))
    from bert_jax.data.preparation import beam, prepare, recommendation, report

    if options.options and not options.runner:
        raise BadInput(f"prepare: {' '.join(options.options)}: not an option; quote globs: '*.txt'")
    engine = beam.open_runner(options.runner, options.options)
    values = prepare.prepare(config, cli.log, engine)
    run = workdir.of_config(options.config)
    values["recommended"] = recommendation.recommend(config, values, time_step, bool(run))
    for each in values["recommended"]:
        each["arguments"] = recommendation.arguments(each, options.config, overrides)
    lines = report.describe(values, recommendation.describe(values, run))
    if "seconds" in values:
        speed = "{seconds:.1f} s, {megabytes_per_second:.1f} MB/s".format(**values)
        lines.append(f"text read and store written: {speed}")
    return cli.show(options, values, "\n".join(lines))


def time_step(config) -> float | None:
    """Returns the seconds of a step of a config on this machine, the mean of its phases, from a few timed steps.

    Returns None on TPUs, whose hosts wait for each other (`plan` estimates them), and if the steps cannot run.
    """
    if chips.has_device(chips.TPUS):
        return None
    from bert_jax.commands import benchmark

    cli.log(f"prepare: timing steps of {config.model.layers} x {config.model.width}")
    phases = configs.phases(config)
    few = config.copy_and_resolve_references()
    few.train.tokens_per_device = 0
    try:
        for phase in phases:
            most = max(1, TOKENS // phase.length) * jax.device_count()
            few.phases[phase.name].batch = min(phase.batch, most)
        timings = benchmark.benchmark(few, steps=STEPS, log=lambda line: None)["phases"]
    except Exception as error:  # such as a device in use; the report matters more than this number
        cli.log(f"prepare: steps could not be timed: {one_line(error)}")
        return None
    seconds = [
        phase.keys.steps * phase.batch / timings[phase.name]["rows_per_second"] for phase in phases
    ]
    return sum(seconds) / configs.total_steps(config)
