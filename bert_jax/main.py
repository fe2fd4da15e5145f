"""The command line: arguments -> config -> one call. The only file that knows arguments."""

import argparse
import io
import math
import os
import sys
from pathlib import Path

from bert_jax import __version__, answers, streams
from bert_jax.errors import LOST, BadInput, Missing, Unfinished
from bert_jax.remote import address

DESCRIPTION = """BERT pretraining in JAX: raw text in, a downstream-ready BERT out.

Any key of a config can be set with --config.KEY=VALUE, for example --config.train.micro_batches=4.
"""
EXIT_CODES = """exit codes:
    0  done
    1  failed: something has to be mended first
    2  bad input
   75  preempted after saving, or before the first step: start again
   76  another process of the run, a device or an address was lost or is missing: start again
  130  interrupted, after saving where anything was trained, unless interrupted twice
  134  aborted by JAX, because another process of the run was lost: start again
  137  killed, by others or at one of its own deadlines (config.deadlines): start again
  143  terminated in its first seconds, or while it prepares: start again
launch/again.sh starts a command again.
"""
RUNS = ("workdir", "model", "a", "b")  # the options that name runs


def main(arguments: list[str] | None = None) -> int:
    arguments, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
    # TensorFlow announces itself at import in several lines; its errors stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if isinstance(
        sys.stdout, io.TextIOWrapper
    ):  # a terminal that lacks a character gets its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = parser().parse_args(arguments)
        answers.check_json(options)
        with read_as_copies(options):
            code = options.command(options, overrides)
        sys.stdout.flush()
        return code
    except BadInput as error:
        # Names from others' files may hold line breaks.
        streams.complain(" ".join(str(error).splitlines()))
        return 2
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`; nothing more can be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (FloatingPointError, Missing, Unfinished) as error:
        streams.complain(str(error))
        return LOST if isinstance(error, Missing) else 1
    except KeyboardInterrupt:
        return 130


def split_overrides(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Takes --config.KEY=VALUE and --config.KEY VALUE out of the arguments."""
    rest, overrides = [], []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest += [argument, *remaining]
        elif not argument.startswith("--config."):
            rest.append(argument)
        elif "=" in argument:
            overrides.append(argument.removeprefix("--config."))
        else:
            overrides.append(f"{argument.removeprefix('--config.')}={next(remaining, '')}")
    return rest, overrides


def read_as_copies(options):
    """A context in which commands that read runs are given copies of those at an address."""
    from bert_jax.mirror import copies

    named = () if options.command in (pretrain_command, import_command) else RUNS
    return copies(options, named, ("status.json",) if options.command is status_command else ())


class Parser(argparse.ArgumentParser):
    """One whose errors are a line, as all others."""

    def error(self, message: str):
        raise BadInput(f"{message}; see {self.prog} --help")


def parser() -> argparse.ArgumentParser:
    top = Parser(
        "bert-jax",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(function, *options):
        command = commands.add_parser(
            function.__name__.removesuffix("_command"),
            help=function.__doc__,
            description=function.__doc__,
        )
        for names, settings in options:
            command.add_argument(names, **settings)
        command.set_defaults(command=function)

    needed = dict(required=True)
    config = "--config", needed | dict(help="a shipped config (demo), a .py file, or a config.json")
    run = "--workdir", needed | dict(type=address, help="directory or address of the run")
    as_json = "--json", dict(metavar="FILE", help="also write results here; - is standard output")
    rows = "--rows", dict(type=positive, help="rows to show; default: 4")
    step = "--step", dict(type=int, help="the step whose batch is shown")
    steps = "--steps", dict(metavar="A:B", help="the steps A to B - 1, whose batches are saved")
    save = "--save", dict(type=Path, metavar="DIR", help="to save batches to, with --steps")
    of_phase = "--phase", dict(metavar="NAME", help="of the config; default: all, one by one")
    batches = (
        "--batches",
        dict(
            metavar="DIR", help="saved batches, or synthetic; default: the config's, or synthetic"
        ),
    )
    timed = "--steps", dict(type=positive, default=10, help="timed steps; default: %(default)s")
    profile = "--profile", dict(type=Path, metavar="DIR", help="for traces of the timed steps")
    topology = (
        "--topology",
        needed
        | dict(metavar="NAME", help="as v5e:4x4, or v5litepod-16; v5e, all: ranked, extrapolated"),
    )
    price = (
        "--price",
        dict(type=prices, default={}, help="of a chip for an hour; also as v5e=1.2,v6e=2.7"),
    )
    search = (
        "--search",
        dict(action="store_true", help="try mesh shapes, micro-batches and remat, extrapolated"),
    )
    model = (
        "--model",
        needed | dict(type=address, help="directory of a run, or of another program's model"),
    )
    top_pieces = "--top", dict(type=positive, default=5, help="candidates a mask")
    store = "--store", dict(type=address, help="directory or address of a token store")
    of_run_files = "--workdir", dict(type=address, help="directory or address of a run")
    source = "--source", needed | dict(type=Path, help="directory of a model of another program")
    of_run = "--config", dict(help="config of the run to come; base where it is left out")
    words = "--add-words", dict(type=Path, metavar="FILE", help="new words, one a line")
    output = "--output", needed | dict(type=Path, help="directory to write; may not be there yet")
    forms = ("huggingface", "google")
    form = "--format", dict(choices=forms, default=forms[0], help="default: %(default)s")
    name = "--name", dict(default="", help="of the model, in its card; default: the run's")
    licence = "--license", dict(default="", metavar="ID", help="of the weights, as apache-2.0")
    data = "--data-license", dict(default="", metavar="ID", help="of the text, as cc-by-sa-4.0")
    language = "--language", dict(default="", metavar="CODE", help="of the text, as en")
    texts = "texts", dict(nargs="+", metavar="TEXT", help="with one or more [MASK]")
    measured = "--workdir", dict(type=address, help="of a run, on rows of its own store")
    models = "--model", dict(type=address, action="append", help="directory of a model; may repeat")
    on_text = "--config", dict(help="whose held-out text the models are measured on")
    pair = [
        (name, needed | dict(type=address, help="directory of a model")) for name in ("--a", "--b")
    ]
    runner = "--runner", dict(default="", help="of Apache Beam; default: processes here")
    of_runner = "options", dict(nargs="*", metavar="OPTION", help="of the runner, after --")
    add(prepare_command, config, runner, of_runner, as_json)
    add(pretrain_command, config, run)
    add(config_command, config, as_json)
    add(inspect_command, config, step, rows, steps, save, as_json)
    add(benchmark_command, config, of_phase, batches, timed, profile, as_json)
    add(plan_command, config, topology, price, of_phase, search, as_json)
    add(status_command, run, as_json)
    add(evaluate_command, measured, models, on_text, as_json)
    add(verify_command, store, of_run_files, as_json)
    add(import_command, source, run, of_run, words, as_json)
    add(export_command, run, output, form, name, licence, data, language, as_json)
    add(predict_command, model, top_pieces, texts, as_json)
    add(compare_command, *pair, as_json)
    return top


def load(options, overrides):
    from bert_jax import config

    return config.load(options.config, overrides)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1")
    return int(text)


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


def interval(text: str) -> tuple[int, int]:
    """A and B of "A:B"."""
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise BadInput(f"--steps {text}: expected A:B, the steps A to B - 1")
    return int(first), int(last)


def refuse(overrides) -> None:
    if overrides:
        raise BadInput(f"--config.{overrides[0]}: this command takes no config")


def prepare_command(options, overrides) -> int:
    """Turn raw text into a token store, once."""
    config = load(options, overrides)
    from bert_jax.data import prepare, report
    from bert_jax.data.preparing import beam

    engine = beam.open_runner(options.runner, options.options)
    values = prepare.prepare(config, answers.tell, engine)
    lines = report.describe(values, config.store, config.tokenizer.path)
    if "seconds" in values:
        lines.append(f"{values['seconds']:.1f} s, {values['megabytes_per_second']:.1f} MB/s")
    return answers.show(options, values, "\n".join(lines))


def verify_command(options, overrides) -> int:
    """Say all that is wrong with a store, or with a run."""
    refuse(overrides)
    if bool(options.store) == bool(options.workdir):
        raise BadInput("verify: expected --store or --workdir")
    from bert_jax import verify, verify_workdir

    if options.store:
        values = verify.verify(options.store, answers.tell)
    else:
        values = verify_workdir.verify_workdir(options.workdir)
    answers.show(options, values, "\n".join(verify.describe(values)))
    return 0 if values["sound"] else 1


def pretrain_command(options, overrides) -> int:
    """Train, from the newest checkpoint of the workdir if there is one."""
    with streams.lasting():
        config = load(options, overrides)
        from bert_jax.pretrain import pretrain

        return pretrain(config, options.workdir)


def config_command(options, overrides) -> int:
    """Print every resolved key, and what differs from base."""
    from bert_jax import config

    values = config.load(options.config, overrides)
    return answers.show(options, values.to_dict(), config.describe(values))


def inspect_command(options, overrides) -> int:
    """Show the batch of a step (rows, masks, fill, pair ratio, SHA-256), or save the batches of many."""
    showing = options.step is not None
    if showing == (options.steps is not None) or showing == (options.save is not None):
        raise BadInput("inspect: expected --step N, or --steps A:B and --save DIR")
    if options.rows and not showing:
        raise BadInput(f"--rows {options.rows}: rows are shown of one step, with --step N")
    config = load(options, overrides)
    from bert_jax import inspect, save_batches

    if showing:
        values = inspect.inspect(config, options.step, options.rows or 4, answers.tell)
        return answers.show(options, values, inspect.describe(values))
    values = inspect.save(config, *interval(options.steps), options.save, answers.tell)
    return answers.show(options, values, save_batches.describe(values))


def benchmark_command(options, overrides) -> int:
    """Time the training step of each phase on the devices that are here; needs no text and no workdir."""
    config = load(options, overrides)
    from bert_jax import benchmark, cluster

    batches = options.batches or config.batches or benchmark.SYNTHETIC
    with cluster.joined(config.distributed) as processes:
        speaks = processes.is_main
        values = benchmark.benchmark(
            config,
            batches,
            options.phase,
            options.steps,
            answers.tell if speaks else answers.silent,
            processes,
            options.profile,
        )
        return answers.show(options, values, benchmark.describe(values)) if speaks else 0


def plan_command(options, overrides) -> int:
    """Say what a run needs, takes and costs on a TPU slice, without one."""
    # Before anything imports JAX: libtpu is here to compile, and has no devices.
    os.environ["JAX_PLATFORMS"] = "cpu"
    config = load(options, overrides)
    from bert_jax import plan, topology
    from bert_jax.planning import describe

    if unknown := options.price.keys() - {"", *topology.CHIPS}:
        raise BadInput(f"--price {min(unknown)}: no chip; they are {', '.join(topology.CHIPS)}")
    if options.search and options.price:
        raise BadInput("--price: not of --search, which ranks by seconds")
    if options.topology in (plan.ALL, *topology.CHIPS):
        if options.search:
            raise BadInput(f"--search: is of one slice, not of --topology {options.topology}")
        values = plan.plan_all(config, options.topology, options.price, options.phase, answers.tell)
        return answers.show(options, values, describe.describe_all(values))
    if options.search:
        values = plan.plan_search(config, options.topology, options.phase, answers.tell)
        return answers.show(options, values, describe.describe_search(values))
    values = plan.plan(config, options.topology, options.price, options.phase, answers.tell)
    code = answers.show(options, values, describe.describe(values))
    plan.check_fits(values)
    return code


def status_command(options, overrides) -> int:
    """Say what a run is doing."""
    refuse(overrides)
    from bert_jax import status

    values = status.status(options.workdir)
    return answers.show(options, values, status.describe(values))


def evaluate_command(options, overrides) -> int:
    """Measure a run on its held-out rows, or several models of any vocabularies on the same held-out text."""
    if bool(options.workdir) == bool(options.model):
        raise BadInput("evaluate: expected --workdir, or --model and --config")
    if bool(options.model) != bool(options.config):
        raise BadInput("evaluate: --model and --config, which names the text, go together")
    if options.model:
        config = load(options, overrides)
        from bert_jax import evaluate_models

        values = evaluate_models.evaluate(options.model, config, answers.tell)
        return answers.show(options, values, evaluate_models.describe(values))
    from bert_jax import evaluate

    values = evaluate.evaluate(options.workdir, overrides)
    text = "\n".join(f"{name} {value:.6g}" for name, value in values.items())
    return answers.show(options, values, text)


def import_command(options, overrides) -> int:
    """Make a run of a model that others made, to continue or to fine-tune."""
    from bert_jax import config, import_model

    settings = config.load(options.config) if options.config else None
    values = import_model.import_model(
        options.source, options.workdir, settings, overrides, options.add_words
    )
    return answers.show(options, values, import_model.describe(values))


def compare_command(options, overrides) -> int:
    """Say in what two models differ: settings, tensors, vocabulary, outputs."""
    refuse(overrides)
    from bert_jax import compare

    values = compare.compare(options.a, options.b)
    return answers.show(options, values, compare.describe(values))


def export_command(options, overrides) -> int:
    """Write a run's newest checkpoint for Hugging Face transformers, or as a TensorFlow checkpoint."""
    refuse(overrides)
    from bert_jax import export

    about = options.name, options.license, options.data_license, options.language
    values = export.export(options.workdir, options.output, options.format, *about)
    return answers.show(options, values, export.describe(values))


def predict_command(options, overrides) -> int:
    """Fill in [MASK] in texts."""
    refuse(overrides)
    from bert_jax import predict

    values = predict.predict(options.model, options.texts, options.top)
    return answers.show(options, values, "\n".join(map(predict.describe, values)))
