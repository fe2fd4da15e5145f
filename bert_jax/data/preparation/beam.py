"""Apache Beam in place of the pool: maps a function over tasks, a pipeline a stage, on any of Beam's runners.

Through Beam go the tasks' places alone. The tasks and what comes of them are files in a directory that the driver and
all workers see under the same name.
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


def open_runner(runner: str, arguments: list[str]) -> Callable[[Path], Callable] | None:
    """directory -> run(function, tasks) on one of RUNNERS, with its own options as --name=value; None for ''.

    BadInput, before anything is written, without Beam, and for options that it does not know or lacks.
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
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            options = PipelineOptions([*arguments, f"--runner={runner}"])
            known = options.get_all_options()
    except SystemExit:  # of argparse
        raise BadInput(f"--runner={runner}: {told.getvalue().strip().splitlines()[-1]}") from None
    if unknown := options.get_all_options(retain_unknown_options=True).keys() - known.keys():
        raise BadInput(f"--runner={runner}: --{min(unknown)}: no option of Apache Beam")
    # Where there is one trigger that is not, DirectRunner does not download another program, Prism, to run
    # pipelines there. Here are no triggers at all.
    options.view_as(TypeOptions).allow_unsafe_triggers = True
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # of workers here: one thread each cuts words
    try:
        apache_beam.Pipeline(options=options)
    except Exception as error:  # of a runner, which asks for options of its own
        raise BadInput(f"--runner={runner}: {one_line(error)}") from None
    return lambda directory: functools.partial(run, options, directory)


def run(options, directory: Path, function: Callable, tasks: Iterable) -> Iterator:
    """The results in the order of the tasks; BadInput and OSError of a task are raised here.

    Raises Unfinished where the runner fails.
    """
    import apache_beam

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    places = []
    with open(directory / "tasks", "wb") as file:
        pickle.dump(function, file)
        for task in tasks:
            places.append(file.tell())
            pickle.dump(task, file)
    try:
        with apache_beam.Pipeline(options=options) as pipeline:
            created = pipeline | apache_beam.Create(places)
            # Every task may go to another worker than the one before.
            created | apache_beam.Reshuffle() | apache_beam.Map(work, directory)
    except Exception as error:
        raise Unfinished(f"Apache Beam: {one_line(error)}") from error
    for place in places:
        with open(directory / f"{place}", "rb") as file:
            result = pickle.load(file)
        if isinstance(result, Exception):
            raise result
        yield result
    shutil.rmtree(directory)


def work(place: int, directory: Path) -> None:
    """Runs in a worker: does the task at this place of the file."""
    with open(directory / "tasks", "rb") as file:
        function = pickle.load(file)
        file.seek(place)
        task = pickle.load(file)
    try:
        result = function(task)
    except (BadInput, OSError) as error:
        result = error
    with atomic.file(directory / f"{place}", sync=False) as file:
        pickle.dump(result, file)
