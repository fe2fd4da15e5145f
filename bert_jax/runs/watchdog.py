"""Deadlines: a process that is stuck ends by SIGALRM, whatever it is stuck in, and leaves the stacks of its threads.

faulthandler writes them in C, without Python's lock, and passes the signal on, whose default ends the process: exit
code 142 in a shell. A process that is stopped ends when it goes on, others of its run by their own deadlines. The
kernel spares the first process of a container, so images start through an init.
"""

import contextlib
import faulthandler
import os
import signal

LONGEST = 2**31 - 1  # seconds of an alarm


class Watchdog:
    """Used as a context. One deadline at a time."""

    def __init__(self, deadlines: dict[str, int]):
        """deadlines: {key: seconds, 0 for none}"""
        self.deadlines = dict(deadlines)
        self.key = ""  # what has a deadline now

    def __enter__(self):
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)  # for the stacks of a process that JAX aborts
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # or one that was ignored would be passed on
        self.stacks = open_stacks()
        faulthandler.register(signal.SIGALRM, file=self.stacks, all_threads=True, chain=True)
        return self

    def __exit__(self, *_):
        signal.alarm(0)
        faulthandler.unregister(signal.SIGALRM)
        if self.stacks != 2:
            os.close(self.stacks)

    def arm(self, key: str) -> None:
        """Starts a deadline, from now on; it replaces the one before. "" is none."""
        self.key = key
        signal.alarm(min(self.deadlines[key], LONGEST) if key else 0)

    @contextlib.contextmanager
    def watch(self, key: str):
        """A deadline for what is done within; then that of before starts again."""
        before = self.key
        self.arm(key)
        try:
            yield
        finally:
            self.arm(before)


def open_stacks() -> int:
    """Standard error as a file that is never waited for: the process may be stuck in a pipe that nobody empties."""
    try:
        return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:  # a socket, or no Linux
        return 2
