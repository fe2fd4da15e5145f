"""Apache Beam in place of the pool: maps a function over tasks, a pipeline a stage, on any of Beam's runners.

Through Beam go the tasks' numbers alone. The tasks and what comes of them are files in a directory that the driver and
all workers see under the same name.
"""

import atexit
import contextlib
import functools
import io
import logging
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput, Unfinished, one_line
from bert_jax.storage import atomic

RUNNERS = ("DirectRunner", "FlinkRunner", "DataflowRunner", "SparkRunner")
# Options of Beam's that are not to be given, and why.
REFUSED = {
    "--runner": "stands before --",
    "--help": "is not here; see Apache Beam's documentation",
    "--no_wait_until_finish": "every stage reads what the one before it has written",
}
FAILED = "failed"  # the file of what a task has raised
SAID = "said"  # the file of what Beam and its workers have said
# In the words of an error that has come through several programs, each with a stack, the line of the one that it was.
LONGEST = 200  # characters of it
CAUSE = re.compile(r"^(?!java|org)([A-Za-z_][\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)
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
        from apache_beam.options.pipeline_options import PipelineOptions, TypeOptions, WorkerOptions
    except ImportError as error:
        raise BadInput(
            f"--runner={runner}: needs apache-beam, the extra `beam` ({one_line(error)})"
        ) from None
    for argument in arguments:
        name = argument.partition("=")[0]
        if not name.startswith("--"):
            raise BadInput(f"--runner={runner}: {argument}: expected --OPTION=VALUE after --")
        if name in REFUSED:
            raise BadInput(f"--runner={runner}: {argument}: {REFUSED[name]}")
    options, told = PipelineOptions([*arguments, f"--runner={runner}"]), io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            asked = options.get_all_options(retain_unknown_options=True)
            unknown = sorted(asked.keys() - options.get_all_options().keys())
            # Where there is one trigger that is not, DirectRunner does not download another program, Prism, to run
            # pipelines there: in one process, whatever the options say. Here are no triggers at all.
            options.view_as(TypeOptions).allow_unsafe_triggers = True
            workers = options.view_as(WorkerOptions)
            workers.default_sdk_harness_log_level = workers.default_sdk_harness_log_level or "ERROR"
            shutil.rmtree(Pipeline(options=options).local_tempdir)
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
        work((0, places[0]), directory)
    else:
        with temporary() as place, environment(ENVIRONMENT | {"TMPDIR": place}):
            in_pipeline(options, directory, list(enumerate(places)))
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
    with atomic.file(path, sync=False) as file:
        pickle.dump(function, file)
        for task in tasks:
            places.append(file.tell())
            pickle.dump(task, file)
    return places


def in_pipeline(options, directory: Path, items: list[tuple[int, int]]) -> None:
    import apache_beam

    said = directory / SAID
    try:
        with apart(said), quiet(), ending_with_workers():
            with apache_beam.Pipeline(options=options) as pipeline:
                created = pipeline | apache_beam.Create(items)
                # Every item may go to another worker than the one before.
                created | apache_beam.Reshuffle() | "a task" >> apache_beam.Map(work, directory)
    except Exception as error:
        with open(said, "a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
        found = CAUSE.findall(str(error))
        reason = found[-1][:LONGEST].rstrip(": ") if found else one_line(error)
        raise Unfinished(f"Apache Beam: {reason}; more in {said}") from error


@contextlib.contextmanager
def apart(path: Path) -> Iterator[None]:
    """What is said meanwhile on standard error, here and by processes that are started, goes to the end of a file:
    notices of all workers at every start, and the stack of every try."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(path, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


@contextlib.contextmanager
def temporary() -> Iterator[str]:
    """A directory for all that Beam would leave in that of temporary files; gone at the end or, where a job server has
    its files there, which Beam stops when this process ends, after that."""
    path = tempfile.mkdtemp(prefix="bert_jax_beam_")
    remove = functools.partial(shutil.rmtree, path, ignore_errors=True)
    atexit.register(remove)
    try:
        yield path
    finally:
        if not any(Path(path).glob("beam-temp*")):
            remove()
            atexit.unregister(remove)


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """These variables, for processes that are started within; TMPDIR counts for this one, too."""
    before = {name: os.environ.get(name) for name in variables}
    place = tempfile.tempdir
    os.environ |= variables
    tempfile.tempdir = variables["TMPDIR"]
    try:
        yield
    finally:
        tempfile.tempdir = place
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


def work(item: tuple[int, int], directory: Path) -> None:
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
    with atomic.file(directory / name, sync=False) as file:
        pickle.dump(result, file)
