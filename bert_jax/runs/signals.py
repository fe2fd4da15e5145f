"""SIGTERM and Ctrl-C: they ask a run to stop, which saves the step it is in; several processes agree on that step."""

import os
import signal
import sys
from contextlib import contextmanager, suppress

from jax.experimental import multihost_utils

from bert_jax.parallel.processes import Cluster

# Exit codes of a run that was told to stop, and has saved what there was to save.
PREEMPTED, INTERRUPTED = 75, 130
SIGNALS = {signal.SIGTERM: PREEMPTED, signal.SIGINT: INTERRUPTED}


class Stop:
    """Whether to stop, and with which exit code."""

    def __init__(self, processes: Cluster):
        self.processes = processes
        self.code = 0  # of several processes, each has its own until they agree
        self.agreed = False
        self.times = 0  # that it was asked: the same in all processes whenever they ask
        self.pressed = False  # Ctrl-C, here
        self.begun = False  # where not, a process alone has nothing to save, and ends at once

    def asked(self) -> bool:
        """Whether to stop now: the same in all processes, which ask after each step and each held-out batch.

        JAX's service names one of the numbers to come, from 1 on: none may be left out, and nobody else may ask it.
        """
        self.times += 1
        if self.processes.is_alone:
            return bool(self.code)
        if not self.agreed and multihost_utils.reached_preemption_sync_point(self.times):
            self.agreed = True
            self.code = max(PREEMPTED, *self.processes.gather(self.code))
        return self.agreed


@contextmanager
def stop_signals(processes: Cluster):
    """Within it SIGTERM and the first Ctrl-C only ask to stop; a second Ctrl-C stops at once. So does the first signal
    to a process alone that has not begun.

    Of several processes, one asks for all: JAX's service, which has taken SIGTERM, finds a time to ask that none
    has passed.
    """
    stop = Stop(processes)

    def handle(number, _):
        if processes.is_alone and not stop.begun:
            with suppress(Exception):  # of a stream that is being written
                print("bert-jax: stopped before the first step", file=sys.stderr)
                sys.stdout.flush()
            os._exit(SIGNALS[number])
        if stop.pressed and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.pressed |= number == signal.SIGINT
        stop.code = stop.code or SIGNALS[number]
        if not processes.is_alone:
            os.kill(os.getpid(), signal.SIGTERM)

    numbers = SIGNALS if processes.is_alone else [signal.SIGINT]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
