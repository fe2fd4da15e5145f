"""Several processes as one run: they connect, compare their settings, and end together.

Only process 0 prints and writes. Messages here are short texts in the key-value store of JAX's coordinator, which runs
in process 0; arrays are exchanged only by compiled programs.

The failure protocol: if one process raises an error, the others end within seconds, and say why. Without it they would
wait for that process in a collective, until JAX aborts them without a reason. There are one message and one barrier:

    FAILED   a key of the store: exit code and reason of the first process that failed. The store refuses to set a key
             again, so a later failure does not replace it.
    ENDING   the barrier that every process reaches before it exits after a failure.

In each process, the main thread runs the command, and a second thread, in `watch`, waits for FAILED: the main thread
may be in a collective, which waits for the failed process. For example, process 1 of two raises BadInput:

    process 1, main thread                          process 0, thread of `watch`
                                                    waits for FAILED, from the start on
    sets FAILED to [2, "process 1: config.seed"]    reads FAILED
    prints "bert-jax: config.seed"                  prints "bert-jax: process 1: config.seed", writes status.json
    waits at ENDING                                 waits at ENDING
    exits with code 2                               exits with code 2, GRACE seconds later

Process 0 exits last, because JAX aborts processes that outlive the coordinator. A process that hangs or was killed does
not reach ENDING; the others wait for it no longer than MAX_WAIT.

If several processes fail, each prints its own error, which may be another one. But a lost process or device is often
lost because it failed first: then FAILED has the cause, which is printed instead.

Both threads of a process may see a failure. The first one takes the lock `exiting` and never releases it, so that a
process prints one error, with the exit code of that error.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import __version__
from bert_jax import config as configs
from bert_jax.errors import LOST, BadInput, Unavailable, Unfinished, discarded, log, one_line
from bert_jax.parallel.chips import TPUS, has_device
from bert_jax.storage.checksums import json_digest

# Config keys that may differ between the processes of a run, such as paths on each host.
LOCAL = ("store", "batches", "compilation_cache", "verify_store", "corpus.workers")

FAILED = "bert_jax/failed"
ENDING = "bert_jax/ending"
MAX_WAIT = 5000  # milliseconds that a process waits for the others at ENDING
GRACE = 1.0  # seconds that process 0 gives the others to exit
MAX_REASON = 1000  # characters of a reason
# Prefixes of JAX's errors if a process or device was lost; other errors (out of memory, a wrong program) would recur.
GONE = (
    "UNKNOWN",
    "INTERNAL",
    "UNAVAILABLE",
    "ABORTED",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "DATA_LOSS",
)
COLLECTIVE = ("Gloo", "NCCL")  # libraries of collectives
NO_OTHERS = "coordinator_address should be defined"  # JAX's message for a single process
TASKS = "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"  # set by schedulers: number of tasks
# Seconds until all hosts must see a new file: network file systems cache, too, that a file does not exist.
VISIBLE = 60.0
SECOND = 1000  # milliseconds
HOUR = 3600 * SECOND


class Failure(NamedTuple):
    """Why a process ends."""

    code: int  # its exit code
    reason: str  # one line
    text: str  # what it prints: the reason, or a traceback


class Cluster:
    """This process among the processes of a run. A single process needs no coordinator."""

    def __init__(self, process: int = 0, processes: int = 1, client=None):
        self.process = process
        self.processes = processes
        self.client = client
        self.calls = 0  # all processes make the same calls in the same order
        self.exiting = threading.Lock()  # of the thread that ends this process
        self.on_failure = lambda reason, code: None  # called before this process ends

    @property
    def is_main(self) -> bool:
        """Whether this is process 0, which prints and writes."""
        return self.process == 0

    @property
    def is_single(self) -> bool:
        return self.processes == 1

    def gather(self, value) -> list:
        """Returns, in every process, the JSON values of all processes in order."""
        if self.is_single:
            return [value]
        self.calls += 1
        name = f"bert_jax/{self.calls}"
        self.client.key_value_set(f"{name}/{self.process}", json.dumps(value))
        if self.is_main:
            texts = [self.get(f"{name}/{number}") for number in range(self.processes)]
            self.client.key_value_set(f"{name}/all", f"[{','.join(texts)}]")
        return json.loads(self.get(f"{name}/all"))

    def get(self, key: str) -> str:
        """Waits for a text that another process sets, for up to an hour: hosts compile and read at different speeds.
        Raises Unfinished after that."""
        for _ in range(HOUR // SECOND):  # short waits, between which Python handles signals
            try:
                return self.client.blocking_key_value_get(key, SECOND)
            except jax.errors.JaxRuntimeError as error:
                if not is_late(error):
                    raise
        raise Unfinished("config.distributed: another process has not answered for an hour")

    def from_main(self, value):
        """Returns process 0's JSON value in every process."""
        return self.gather(value if self.is_main else None)[0]

    def wait_until_equal(self, read: Callable[[], str | int | None], name: str) -> None:
        """Waits until `read`, which reads the workdir, returns the same in all processes as in process 0.

        name: of the workdir in this process.

        Raises BadInput after VISIBLE seconds.
        """
        expected = self.from_main(read())
        deadline = time.monotonic() + VISIBLE
        seen = read()
        while seen != expected and time.monotonic() < deadline:
            time.sleep(0.1)
            seen = read()
        views = self.gather([seen == expected, name])
        for number, (is_same, name) in enumerate(views):
            if not is_same:
                raise BadInput(
                    f"--workdir {name}: process {number} does not see the files that process 0 sees in {views[0][1]};"
                    " it must be on a file system that all processes share"
                )

    def agree(self, config: ConfigDict) -> None:
        """Raises BadInput if processes have different configs or different numbers of devices, with which Orbax cannot
        save."""
        settings = {
            f"config.{key}": value
            for key, value in configs.flatten(config).items()
            if key not in LOCAL and not key.startswith("distributed.")
        }
        self.compare(settings | {"devices": jax.local_device_count()})

    def compare(self, settings: dict) -> None:
        """Raises BadInput in all processes, which names the first key whose JSON value differs between them."""
        digests = self.gather(json_digest(settings))
        other = next((i for i, digest in enumerate(digests) if digest != digests[0]), None)
        if other is None:
            return
        # Digests first, because the settings of a thousand processes are large.
        is_sender = self.process in (0, other)
        sent = self.gather(settings if is_sender else None)
        first = sent[0]
        second = sent[other]
        for key in sorted(first | second):
            a = first.get(key)
            b = second.get(key)
            if a != b:
                raise BadInput(f"{key}: {a!r} in process 0, {b!r} in process {other}")

    def watch(self) -> None:
        """Ends this process when another one fails. Runs in a thread."""
        while True:
            try:
                failure = self.read_failure(HOUR)
            except jax.errors.JaxRuntimeError as error:
                if not is_late(error):
                    return  # the run has ended without a failure
            else:
                with self.exiting:
                    self.exit(failure)

    @contextlib.contextmanager
    def ending_together(self):
        """Ends all processes, with its exit code and message, when one of several raises an error in the context."""
        try:
            yield
        except BaseException as error:
            if self.is_single:
                raise
            # Not raised again: the exit of outer contexts may wait for other processes.
            with self.exiting:
                self.fail(explain(error))

    def fail(self, failure: Failure) -> None:
        """Tells the other processes of a failure of this one, and ends this process."""
        message = json.dumps([failure.code, f"process {self.process}: {failure.reason}"])
        try:
            self.client.key_value_set(FAILED, message)
        except jax.errors.JaxRuntimeError:
            # Another process failed first, or the coordinator is gone.
            if failure.code == LOST:
                with contextlib.suppress(jax.errors.JaxRuntimeError):
                    failure = self.read_failure(SECOND)
        self.exit(failure)

    def read_failure(self, milliseconds: int) -> Failure:
        """Waits for FAILED. Raises JaxRuntimeError after this time, and if the coordinator is gone."""
        text = self.client.blocking_key_value_get(FAILED, milliseconds)
        code, reason = json.loads(text)
        return Failure(code, reason, f"bert-jax: {reason}")

    def exit(self, failure: Failure) -> None:
        """Prints a failure and ends this process, whatever else fails."""
        signal.alarm(0)  # the time limit of a step would end the wait with another code
        try:
            with contextlib.suppress(OSError):
                log(failure.text)
                sys.stdout.flush()
            with contextlib.suppress(Exception):
                self.on_failure(failure.reason, failure.code)
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self.client.wait_at_barrier(ENDING, MAX_WAIT)
            if self.is_main:
                time.sleep(GRACE)
        finally:
            os._exit(failure.code)


def explain(error: BaseException) -> Failure:
    """Returns the failure that an error of this process is."""
    code = 1
    reason = " ".join(str(error).split())[:MAX_REASON]
    if isinstance(error, KeyboardInterrupt):
        code = 130
        reason = "interrupted"
    elif isinstance(error, BadInput):
        code = 2
    elif isinstance(error, Unavailable):
        code = LOST
    elif is_loss(error):
        code = LOST
        reason = f"another process of the run, or a device, was lost: {one_line(error, MAX_REASON)}"
    elif not isinstance(error, Unfinished | FloatingPointError):
        text = "".join(traceback.format_exception(error))
        return Failure(code, one_line(error, MAX_REASON), text.rstrip())
    return Failure(code, reason, f"bert-jax: {reason}")


def is_loss(error: BaseException) -> bool:
    """Returns whether an error says that another process or a device was lost."""
    is_failure = isinstance(error, jax.errors.JaxRuntimeError)
    # numpy raises ValueError if it reads the result of a failed collective.
    is_collective = isinstance(error, ValueError) and any(name in str(error) for name in COLLECTIVE)
    return (is_failure or is_collective) and str(error).startswith(GONE)


def is_late(error: Exception) -> bool:
    """Returns whether a wait for a key has timed out."""
    return "DEADLINE_EXCEEDED" in str(error)


@contextlib.contextmanager
def joined(keys):
    """Connects this process to the others of the run, and yields its Cluster. To be entered before JAX finds devices.

    keys: the config's group `distributed`.

    An error within the context, in any process, ends all of them. Raises BadInput if the number or rank of the
    processes is unknown. If the others do not connect in time, JAX aborts the process; a restart may succeed.
    """
    state = initialize(keys)
    if not state:
        yield Cluster()
        return
    cluster = Cluster(state.process_id, state.num_processes, state.client)
    watcher = threading.Thread(target=cluster.watch, daemon=True)
    watcher.start()
    # Only process 0 prints to standard output.
    output = contextlib.nullcontext() if cluster.is_main else discarded(sys.stdout, 1)
    with cluster.ending_together(), output:
        cluster.compare({"bert_jax": __version__, "jax": jax.__version__})
        yield cluster
    jax.distributed.shutdown()
    watcher.join()


def initialize(keys):
    """Connects this process to the others by the config, environment variables or a scheduler.

    Returns JAX's distributed state, or None for a single process. Raises BadInput if the number or rank of the
    processes is unknown, and Unavailable if JAX cannot connect.
    """
    from jax._src.distributed import global_state  # there is no public name for its client

    address = keys.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    processes = keys.processes or from_variable("JAX_NUM_PROCESSES", 0)
    process = keys.process if keys.process >= 0 else from_variable("JAX_PROCESS_ID", -1)
    is_configured = bool(address or processes or process >= 0)
    # JAX may detect other processes: tasks of a scheduler, or hosts of a TPU slice.
    has_others = has_device(TPUS) or any(from_variable(name, 1) > 1 for name in TASKS)
    if processes == 1 or not (is_configured or has_others):
        return None
    # Detection also assigns devices to the processes of a host, so it is used unless all is configured.
    is_complete = bool(address and processes and process >= 0)
    try:
        jax.distributed.initialize(
            address or None,
            processes or None,
            None if process < 0 else process,
            cluster_detection_method="deactivate" if is_complete else None,
            initialization_timeout=keys.timeout,
            heartbeat_timeout_seconds=keys.heartbeat,
            shutdown_timeout_seconds=keys.timeout,
        )
    except jax.errors.JaxRuntimeError as error:
        raise Unavailable(f"config.distributed: {one_line(error)}") from None
    except Exception as error:  # JAX's detection of schedulers raises errors of any type
        if not is_configured and str(error).startswith(NO_OTHERS):
            return None
        raise BadInput(f"config.distributed: {one_line(error)}") from None
    return global_state if global_state.num_processes > 1 else None


def from_variable(name: str, default: int) -> int:
    """Returns an environment variable as an integer. Raises BadInput if it is not a whole number."""
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise BadInput(f"{name}={text}: expected a whole number")
    return int(text) if text else default
