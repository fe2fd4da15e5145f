"""Apache Beam in place of the pool: maps a function over tasks, a pipeline a stage, on any of Beam's runners.

Through Beam go the tasks' numbers alone. The tasks and what comes of them are files in a directory that the driver and
all workers see under the same name.
"""

import contextlib
import functools
import io
import logging
import os
import pickle
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bert_jax.data.preparing.workplace import whole_file
from bert_jax.errors import BadInput, Unfinished, one_line

RUNNERS = ("DirectRunner", "FlinkRunner", "DataflowRunner", "SparkRunner")
FAILED = "failed"  # the file of what a task has raised
# Of workers on this machine: one thread each cuts words, and what lies in the current directory is not imported.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "PYTHONSAFEPATH": "1"}


def open_runner(runner: str, arguments: list[str]) -> Callable[[Path], Callable] | None:
    """directory -> run(function, tasks) on one of RUNNERS, with its own options as --name=value; None for ''.

    BadInput, before anything is written, without Beam, and for options that it does not know or lacks.
    """
    if not runner:
        if arguments:
            raise BadInput(f"{arguments[0]}: without --runner there are no options of it")
        return None
    if runner not in RUNNERS:
        raise BadInput(f"--runner={runner}: expected one of {', '.join(RUNNERS)}")
    with quiet():
        options = checked(runner, arguments)
    return lambda directory: functools.partial(run, options, directory)


def checked(runner: str, arguments: list[str]):
    """Beam's PipelineOptions. A Pipeline is made of them, and not run, because that has the runner look at them."""
    try:
        from apache_beam import Pipeline
        from apache_beam.options.pipeline_options import PipelineOptions, WorkerOptions
    except ImportError as error:
        raise BadInput(
            f"--runner={runner}: needs apache-beam, the extra `beam` ({one_line(error)})"
        ) from None
    for argument in arguments:
        if not argument.startswith("--"):
            raise BadInput(f"--runner={runner}: {argument}: expected --OPTION=VALUE after --")
    options, told = PipelineOptions([*arguments, f"--runner={runner}"]), io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            asked = options.get_all_options(retain_unknown_options=True)
            unknown = sorted(asked.keys() - options.get_all_options().keys())
            workers = options.view_as(WorkerOptions)
            workers.default_sdk_harness_log_level = workers.default_sdk_harness_log_level or "ERROR"
            Pipeline(options=options)
    except SystemExit:  # of argparse
        line = told.getvalue().strip().rpartition("error: ")[2]
        raise BadInput(f"--runner={runner}: {line}") from None
    except Exception as error:  # each runner checks its options in its own way
        raise BadInput(f"--runner={runner}: {one_line(error)}") from None
    if unknown:
        raise BadInput(f"--runner={runner}: --{unknown[0]}: no option of Apache Beam")
    return options


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Beam tells what it lacks for clouds that nobody asked for, and what is raised anyway."""
    logger, root = logging.getLogger("apache_beam"), logging.getLogger()
    level, handlers, disabled = logger.level, list(root.handlers), root.disabled
    logger.setLevel(logging.CRITICAL)
    root.disabled = True
    try:
        yield
    finally:
        logger.setLevel(level)
        root.handlers[:], root.disabled = handlers, disabled


def run(options, directory: Path, function: Callable, tasks: Iterable) -> Iterator:
    """The results in the order of the tasks; what a task raises is raised here. A single task is done here, too.

    Raises Unfinished where the runner fails.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    places = leave(directory / "tasks", function, tasks)
    if len(places) == 1:
        work(directory, (0, places[0]))
    else:
        in_pipeline(options, functools.partial(work, directory), list(enumerate(places)))
    if (directory / FAILED).exists():
        raise pickle.loads((directory / FAILED).read_bytes())
    for number in range(len(places)):
        with open(directory / f"{number:08d}", "rb") as file:
            result = pickle.load(file)
        yield result
    shutil.rmtree(directory)


def leave(path: Path, function: Callable, tasks: Iterable) -> list[int]:
    """Writes the function and the tasks, one after the other; returns where each task begins."""
    places = []
    with whole_file(path) as file:
        pickle.dump(function, file)
        for task in tasks:
            places.append(file.tell())
            pickle.dump(task, file)
    return places


def in_pipeline(options, function: Callable, items: list) -> None:
    import apache_beam

    try:
        with quiet(), environment(), ending_with_workers():
            with apache_beam.Pipeline(options=options) as pipeline:
                created = pipeline | apache_beam.Create(items)
                # Every item may go to another worker than the one before.
                created | apache_beam.Reshuffle() | apache_beam.Map(function)
    except Exception as error:
        raise Unfinished(f"Apache Beam: {one_line(error)}") from error


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """ENVIRONMENT, for processes that are started within."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ |= ENVIRONMENT
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def ending_with_workers() -> Iterator[None]:
    """Within it, what ends a thread of Beam is raised here: DirectRunner would wait for ever for a lost process."""
    found = []

    def leave(raised) -> None:
        found.append(raised.exc_value)
        if len(found) == 1:  # by a real signal, which wakes a main thread that waits for a lock
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def stop(number, frame) -> None:
        raise RuntimeError

    hook, handler = threading.excepthook, signal.signal(signal.SIGUSR1, stop)
    threading.excepthook = leave
    try:
        yield
    except Exception:
        if not found:
            raise
        raise RuntimeError(f"a worker is lost ({one_line(found[0])})") from None
    finally:
        # Once a thread has ended like this, others do, later, and have nothing to add.
        if not found:
            threading.excepthook = hook
        signal.signal(signal.SIGUSR1, signal.SIG_IGN if found else handler)


def work(directory: Path, item: tuple[int, int]) -> None:
    """Runs in a worker: does a task, given its number and its place; once one has failed, no others are begun."""
    number, place = item
    if (directory / FAILED).exists():
        return
    with open(directory / "tasks", "rb") as file:
        function = pickle.load(file)
        file.seek(place)
        task = pickle.load(file)
    try:
        result, name = function(task), f"{number:08d}"
    except (BadInput, OSError) as error:
        result, name = error, FAILED
    except Exception as error:
        error.add_note(traceback.format_exc())
        result, name = error, FAILED
    with whole_file(directory / name) as file:
        pickle.dump(result, file)
