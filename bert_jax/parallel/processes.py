"""Several processes as one run: connected, of one mind about what is trained, and ending together.

Process 0 speaks and writes for all. What goes from process to process here are short texts, by the key-value store that
JAX's coordinator keeps; arrays travel in compiled programs alone.
"""

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

import jax
from ml_collections import ConfigDict

from bert_jax import __version__
from bert_jax import config as configs
from bert_jax.errors import LOST, BadInput, Missing, Unfinished, one_line
from bert_jax.parallel.chips import DEVICES, TPUS

# What may differ between the processes of a run: where things are on each host.
LOCAL = ("store", "batches", "compilation_cache", "verify_store")
LOCAL += ("corpus.workers",)

FAILED, HEARD = "bert_jax/failed", "bert_jax/heard"
LAST_WORDS = 5.0  # seconds that process 0 waits for the others to hear why all end
GRACE = 1.0  # seconds in which those who have heard are gone: JAX aborts whoever outlives process 0
LONGEST = 1000  # characters of a reason
# How JAX's errors begin where that is so; others (no memory, a wrong program) would come again.
GONE = ("UNKNOWN", "INTERNAL", "UNAVAILABLE", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")
GONE += ("FAILED_PRECONDITION", "DATA_LOSS")
COLLECTIVE = ("Gloo", "NCCL")  # whose errors can only be those of a collective
NOBODY = "coordinator_address should be defined"  # what JAX says where it finds no others
TASKS = "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"  # how many a scheduler has started
SECOND, HOUR = 1000, 3600 * 1000  # milliseconds


class Cluster:
    """This process among all of the run; one alone has nobody to ask and does not need JAX's service."""

    def __init__(self, process: int = 0, processes: int = 1, client=None):
        self.process, self.processes, self.client = process, processes, client
        self.calls = 0  # all processes make the same calls in the same order
        self.lock = threading.Lock()
        self.on_failure: Callable[[str, int], None] = lambda reason, code: None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.process == 0

    @property
    def is_alone(self) -> bool:
        return self.processes == 1

    @property
    def name(self) -> str:
        """What it is called in messages; nothing where there is no other."""
        return "" if self.is_alone else f"process {self.process}"

    def gather(self, value) -> list:
        """The JSON value of every process, in every process."""
        if self.is_alone:
            return [value]
        self.calls += 1
        name = f"bert_jax/{self.calls}"
        self.client.key_value_set(f"{name}/{self.process}", json.dumps(value))
        if self.is_main:
            texts = [self.get(f"{name}/{number}") for number in range(self.processes)]
            self.client.key_value_set(f"{name}/all", f"[{','.join(texts)}]")
        return json.loads(self.get(f"{name}/all"))

    def get(self, key: str) -> str:
        """The text that a process sets, at once or later: one compiles or reads for longer than another."""
        for _ in range(HOUR // SECOND):  # between two waits Python hears signals
            try:
                return self.client.blocking_key_value_get(key, SECOND)
            except jax.errors.JaxRuntimeError as error:
                if not is_late(error):
                    raise
        raise Unfinished("config.distributed: a process has not answered for an hour")

    def from_main(self, value):
        """Process 0's value, in every process."""
        return self.gather(value if self.is_main else None)[0]

    def agree(self, config: ConfigDict) -> None:
        """Raises BadInput where processes have other settings, or other numbers of devices, whose arrays cannot be
        saved."""
        values = {
            f"config.{key}": value
            for key, value in configs.flatten(config).items()
            if key not in LOCAL and not key.startswith("distributed.")
        }
        self.compare(values | {"devices": jax.local_device_count()})

    def compare(self, values: dict) -> None:
        """Raises BadInput in all processes, naming the first key whose (JSON) value is not the same in all."""
        text = json.dumps(values, sort_keys=True)
        digests = self.gather(hashlib.sha256(text.encode()).hexdigest())
        other = next((i for i, digest in enumerate(digests) if digest != digests[0]), None)
        if other is None:
            return
        # Only now: of a thousand processes the values are large, the digests are not.
        here = {0, other}
        a, b = (found for found in self.gather(values if self.process in here else None) if found)
        key = next(key for key in sorted(a | b) if (key in a, a.get(key)) != (key in b, b.get(key)))
        raise BadInput(f"{key}: {a.get(key)!r} in process 0, {b.get(key)!r} in process {other}")

    def watch(self) -> None:
        """In a thread: waits until a process fails, and then ends this one, which may wait for it in a collective."""
        text = None
        while text is None:
            try:
                text = self.client.blocking_key_value_get(FAILED, HOUR)
            except jax.errors.JaxRuntimeError as error:
                if not is_late(error):
                    return  # all have left as they should
        process, code, reason = json.loads(text)
        with self.lock:  # held to the end, so that a process says one line
            self.leave(
                code, f"process {process}: {reason}", f"bert-jax: process {process}: {reason}"
            )

    @contextlib.contextmanager
    def ending_together(self):
        """What is raised within, in any of several processes, ends all of them: with its exit code, and a line."""
        try:
            yield
        except BaseException as error:
            if self.is_alone:
                raise
            # Not passed on: what it would unwind may wait for the others.
            with self.lock:
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Says what is wrong, here and in all other processes, and ends this one."""
        is_known = isinstance(error, BadInput | Missing | Unfinished | FloatingPointError)
        reason = str(error) if is_known else f"{type(error).__name__}: {error}"
        reason = " ".join(reason.split())[:LONGEST]
        is_missing = isinstance(error, Missing)
        code = 2 if isinstance(error, BadInput) else LOST if is_missing or is_loss(error) else 1
        if isinstance(error, KeyboardInterrupt):
            code, is_known, reason = 130, True, "interrupted"
        if code == LOST and not is_missing:
            is_known, reason = True, f"another process of the run, or a device, is gone: {reason}"
        text = f"bert-jax: {reason}" if is_known else "".join(traceback.format_exception(error))
        try:
            self.client.key_value_set(FAILED, json.dumps([self.process, code, reason]))
        except jax.errors.JaxRuntimeError:
            if code == LOST:  # another has failed, and that may be why
                code, reason, text = self.first_failure() or (code, reason, text)
        self.leave(code, reason, text.rstrip())

    def first_failure(self) -> tuple[int, str, str] | None:
        """(exit code, reason, line) of the process that was the first to fail, where that can still be known."""
        try:
            text = self.client.blocking_key_value_get(FAILED, SECOND)
        except jax.errors.JaxRuntimeError:
            return None
        process, code, reason = json.loads(text)
        reason = f"process {process}: {reason}"
        return code, reason, f"bert-jax: {reason}"

    def leave(self, code: int, reason: str, text: str) -> None:
        """Ends this process. Process 0 is the last to go: the others hear from its memory."""
        with contextlib.suppress(Exception):
            self.on_failure(reason, code)
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        deadline = time.monotonic() + LAST_WORDS
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self.client.key_value_set(f"{HEARD}/{self.process}", "")
            for number in range(1, self.processes if self.is_main else 1):
                left = max(0.0, deadline - time.monotonic())
                self.client.blocking_key_value_get(f"{HEARD}/{number}", int(left * 1000) + 1)
        if self.is_main:
            time.sleep(GRACE)
        os._exit(code)


def is_loss(error: BaseException) -> bool:
    """Whether another process, or a device, is gone, rather than something wrong here."""
    kinds = [jax.errors.JaxRuntimeError]
    if any(library in str(error) for library in COLLECTIVE):
        kinds.append(ValueError)  # what numpy makes of it where it reads an array
    return isinstance(error, tuple(kinds)) and str(error).startswith(GONE)


def is_late(error: Exception) -> bool:
    return "DEADLINE_EXCEEDED" in str(error)


@contextlib.contextmanager
def joined(keys):
    """The Cluster of this process (`keys` is the config's group `distributed`). Before anything asks for a device.

    What is raised within, in any process, ends all of them. Raises BadInput where JAX cannot tell where this process
    stands. Where the others do not come in time JAX aborts the process, which is started again as after a kill.
    """
    state = initialize(keys)
    if not state:
        yield Cluster()
        return
    cluster = Cluster(state.process_id, state.num_processes, state.client)
    watcher = threading.Thread(target=cluster.watch, daemon=True)
    watcher.start()
    with cluster.ending_together(), speaking(cluster.is_main):
        cluster.compare({"bert_jax": __version__, "jax": jax.__version__})
        yield cluster
    jax.distributed.shutdown()
    watcher.join()


def initialize(keys):
    """Connects this process to the others, by the config, variables or a scheduler; returns JAX's state of it, None
    where it is alone. Raises BadInput where it is not said where this process stands, Missing where JAX cannot
    connect."""
    from jax._src.distributed import global_state  # its client has no public name

    address = keys.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    processes = keys.processes or from_variable("JAX_NUM_PROCESSES", 0)
    process = keys.process if keys.process >= 0 else from_variable("JAX_PROCESS_ID", -1)
    is_told = bool(address or processes or process >= 0)
    if processes == 1 or not (is_told or has_scheduler()):
        return None
    # A scheduler also says which devices of a host are whose.
    is_whole = bool(address and processes and process >= 0)
    try:
        jax.distributed.initialize(
            address or None,
            processes or None,
            None if process < 0 else process,
            cluster_detection_method="deactivate" if is_whole else None,
            initialization_timeout=keys.timeout,
            heartbeat_timeout_seconds=keys.heartbeat,
            shutdown_timeout_seconds=keys.timeout,
        )
    except jax.errors.JaxRuntimeError as error:
        raise Missing(f"config.distributed: {one_line(error)}") from None
    except Exception as error:  # what asks a scheduler raises what it likes
        if not is_told and str(error).startswith(NOBODY):
            return None
        raise BadInput(f"config.distributed: {one_line(error)}") from None
    return global_state if global_state.num_processes > 1 else None


def has_scheduler() -> bool:
    """Whether there is one to ask: of several tasks, or of a TPU, whose slice may have several hosts."""
    is_step = any(from_variable(name, 1) > 1 for name in TASKS)
    return is_step or any(path for name in TPUS for path in DEVICES.glob(name))


def from_variable(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise BadInput(f"{name}={text}: expected a whole number")
    return int(text) if text else default


@contextlib.contextmanager
def speaking(is_main: bool):
    """Only process 0 is heard on standard output; errors of all are."""
    if is_main:
        yield
        return
    sys.stdout.flush()
    before, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    # The descriptor, because libraries in C++ write to it too.
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)
        os.close(nothing)
