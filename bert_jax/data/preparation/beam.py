"""Apache Beam in place of the process pool: maps a function over tasks on any of Beam's runners.

Each stage is one pipeline. Beam carries only the file offset of each task. Tasks and results are files in a directory
that the driver and all workers must see under the same path.
"""

import contextlib
import functools
import io
import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput, Unfinished, one_line
from bert_jax.storage import atomic

RUNNERS = ("DirectRunner", "FlinkRunner", "DataflowRunner", "SparkRunner")


def open_runner(runner: str, arguments: list[str]) -> Callable | None:
    """Returns a function (directory) -> run(function, tasks) that uses one of RUNNERS; None if no runner is named.

    arguments: Beam's own options, as --name=value. Raises BadInput, before anything is written, if Beam is not
    installed, or if an option is unknown, invalid or missing.
    """
    if not runner and not arguments:
        return None
    if runner not in RUNNERS:
        raise BadInput(f"--runner={runner} {' '.join(arguments)}: expected one of {RUNNERS}")
    try:
        import apache_beam
        from apache_beam.options.pipeline_options import PipelineOptions, TypeOptions
    except ImportError as error:
        raise BadInput(
            f"--runner={runner}: needs apache-beam, the extra `beam` ({one_line(error)})"
        ) from None
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            options = PipelineOptions([*arguments, f"--runner={runner}"])
            valid = options.get_all_options()
    except SystemExit:  # raised by argparse
        reason = stderr.getvalue().strip().splitlines()[-1]
        raise BadInput(f"--runner={runner}: {reason}") from None
    unknown = options.get_all_options(retain_unknown_options=True).keys() - valid.keys()
    if unknown:
        raise BadInput(f"--runner={runner}: --{min(unknown)}: not an option of Apache Beam")
    # Without this option, DirectRunner downloads another program, Prism, and runs pipelines there. The option
    # is safe here: the pipelines have no triggers.
    options.view_as(TypeOptions).allow_unsafe_triggers = True
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one tokenizer thread in each local worker
    try:
        apache_beam.Pipeline(options=options)
    except Exception as error:  # raised by a runner that requires options of its own
        raise BadInput(f"--runner={runner}: {one_line(error)}") from None
    return lambda directory: functools.partial(run, options, directory)


def run(options, directory: Path, function: Callable, tasks: Iterable) -> Iterator:
    """Yields the results in the order of the tasks.

    Raises the BadInput or OSError that a task raised, and Unfinished if the runner fails.
    """
    import apache_beam

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    offsets = []
    with open(directory / "tasks", "wb") as file:
        pickle.dump(function, file)
        for task in tasks:
            offsets.append(file.tell())
            pickle.dump(task, file)
    try:
        with apache_beam.Pipeline(options=options) as pipeline:
            created = pipeline | apache_beam.Create(offsets)
            # Without a reshuffle, Beam may fuse the steps and run all tasks in one worker.
            created | apache_beam.Reshuffle() | apache_beam.Map(work, directory)
    except Exception as error:
        raise Unfinished(f"Apache Beam: {one_line(error)}") from error
    for offset in offsets:
        with open(directory / f"{offset}", "rb") as file:
            result = pickle.load(file)
        if isinstance(result, Exception):
            raise result
        yield result
    shutil.rmtree(directory)


def work(offset: int, directory: Path) -> None:
    """Runs in a worker: executes the task at this byte offset of the file `tasks`, and writes its result."""
    with open(directory / "tasks", "rb") as file:
        function = pickle.load(file)
        file.seek(offset)
        task = pickle.load(file)
    try:
        result = function(task)
    except (BadInput, OSError) as error:
        result = error
    with atomic.file(directory / f"{offset}", sync=False) as file:
        pickle.dump(result, file)
