"""SIGTERM and Ctrl-C: the run saves the current step and stops. Several processes stop at the same step."""

import os
import signal
import sys
from contextlib import contextmanager, suppress

from jax.experimental import multihost_utils

from bert_jax.errors import log, may_handle_signals
from bert_jax.parallel.cluster import Cluster

# Exit codes of a run that was stopped by a signal after saving.
PREEMPTED = 75
INTERRUPTED = 130
SIGNALS = {signal.SIGTERM: PREEMPTED, signal.SIGINT: INTERRUPTED}


class StopRequest:
    """The request to stop the run, and its exit code."""

    def __init__(self, processes: Cluster):
        self.processes = processes
        self.code = 0  # differs between processes until they have agreed
        self.agreed = False
        self.calls = 0  # calls of `requested`; the same in all processes
        self.interrupted = False  # whether this process got Ctrl-C
        self.started = False  # until then a single process has nothing to save, and ends at once

    def requested(self) -> bool:
        """Returns whether to stop now; the same in all processes, which call it after each step and held-out batch.

        JAX's preemption service chooses the number of a future call, counted from 1. So no number may be skipped, and
        no other code may call the service.
        """
        self.calls += 1
        if self.processes.is_single:
            return bool(self.code)
        if not self.agreed and multihost_utils.reached_preemption_sync_point(self.calls):
            self.agreed = True
            self.code = max(PREEMPTED, *self.processes.gather(self.code))
        return self.agreed


@contextmanager
def stop_signals(processes: Cluster):
    """Handles signals within the context: SIGTERM and the first Ctrl-C request a stop; a second Ctrl-C raises
    KeyboardInterrupt. A single process that has not started to write the workdir ends at once. Handles none where
    `may_handle_signals` says so.

    With several processes, a signal to one stops all: JAX's preemption service, which handles SIGTERM, chooses a call
    of `requested` that no process has reached yet.
    """
    stop = StopRequest(processes)

    def handle(number, _):
        if processes.is_single and not stop.started:
            with suppress(Exception):  # the signal may have interrupted a write to the same stream
                log("bert-jax: stopped before the first step")
                sys.stdout.flush()
            os._exit(SIGNALS[number])
        if number == signal.SIGINT:
            if stop.interrupted:
                raise KeyboardInterrupt
            stop.interrupted = True
        stop.code = stop.code or SIGNALS[number]
        if not processes.is_single:
            os.kill(os.getpid(), signal.SIGTERM)

    numbers = SIGNALS if processes.is_single else [signal.SIGINT]
    if not may_handle_signals():
        numbers = []
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
