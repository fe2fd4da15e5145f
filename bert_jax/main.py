"""The command line: arguments -> config -> one call. Arguments are known here and in arguments.py alone."""

import io
import os
import sys

from bert_jax import answers, arguments, streams
from bert_jax.errors import LOST, BadInput, Missing, Unfinished

RUNS = ("workdir", "model", "a", "b")  # the options that name runs


def main(words: list[str] | None = None) -> int:
    words, overrides = arguments.split_overrides(sys.argv[1:] if words is None else words)
    # TensorFlow announces itself at import in several lines; its errors stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a character gets its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = parser().parse_args(words)
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


def read_as_copies(options):
    """A context in which commands that read runs are given copies of those at an address."""
    from bert_jax.mirror import copies

    named = () if options.command in (pretrain_command, import_command) else RUNS
    return copies(options, named, ("status.json",) if options.command is status_command else ())


def parser():
    functions = (
        prepare_command,
        pretrain_command,
        config_command,
        inspect_command,
        benchmark_command,
        plan_command,
        status_command,
        evaluate_command,
        verify_command,
        import_command,
        export_command,
        predict_command,
        compare_command,
    )
    return arguments.parser({one.__name__.removesuffix("_command"): one for one in functions})


def load(options, overrides):
    from bert_jax import config

    return config.load(options.config, overrides)


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
    values = inspect.save(config, *options.steps, options.save, answers.tell)
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
