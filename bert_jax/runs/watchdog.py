"""Deadlines: SIGALRM ends a process that hangs, even in C code, and the stacks of its threads are printed.

faulthandler prints them in C without the GIL, then passes the signal on to its default action, which ends the process:
exit code 142 in a shell. A process that was suspended (SIGSTOP) ends when it is continued; the others of its run have
deadlines of their own. The kernel ignores SIGALRM for the first process of a container, so images start with an init
process.
"""

import contextlib
import faulthandler
import os
import signal

from bert_jax.errors import may_handle_signals


class Watchdog:
    """A context manager with one deadline at a time; with none where `may_handle_signals` says so."""

    def __init__(self, deadlines: dict[str, int]):
        """deadlines: {key: seconds, 0 for none}, the config's group `timeouts`."""
        self.deadlines = dict(deadlines)
        self.key = ""  # of the current deadline
        self.is_on = may_handle_signals()

    def __enter__(self):
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)  # prints the stacks if JAX aborts the process
        if self.is_on:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the parent process may have ignored it
            self.stacks = open_stacks()
            faulthandler.register(signal.SIGALRM, file=self.stacks, all_threads=True, chain=True)
        return self

    def __exit__(self, *_):
        if not self.is_on:
            return
        signal.alarm(0)
        faulthandler.unregister(signal.SIGALRM)
        if self.stacks != 2:
            os.close(self.stacks)

    def arm(self, key: str) -> None:
        """Starts the deadline of a key, which replaces the previous one. "" stands for no deadline."""
        self.key = key
        if self.is_on:
            signal.alarm(self.deadlines[key] if key else 0)

    @contextlib.contextmanager
    def watch(self, key: str):
        """Sets a deadline for the context, and then starts the previous one again."""
        before = self.key
        self.arm(key)
        try:
            yield
        finally:
            self.arm(before)


def open_stacks() -> int:
    """Opens standard error without blocking writes: the process may hang because nobody reads its standard error."""
    try:
        return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:  # standard error is a socket, or this is not Linux
        return 2
