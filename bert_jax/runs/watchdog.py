"""Deadlines: SIGALRM ends a process that hangs, even in C code, and the stacks of its threads are printed.

faulthandler prints them in C without the GIL, then passes the signal on to its default action, which ends the process:
exit code 142 in a shell. A process that was suspended (SIGSTOP) ends when it is continued; the others of its run have
deadlines of their own. The kernel ignores SIGALRM for the first process of a container, so images start with an init
process.
"""

import contextlib
import faulthandler
import signal

from bert_jax.errors import may_handle_signals

LONGEST = 2**31 - 1  # the longest alarm in seconds


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
            faulthandler.register(signal.SIGALRM, file=2, all_threads=True, chain=True)
        return self

    def __exit__(self, *_):
        if self.is_on:
            signal.alarm(0)
            faulthandler.unregister(signal.SIGALRM)

    def arm(self, key: str) -> None:
        """Starts the deadline of a key, which replaces the previous one. "" stands for no deadline."""
        self.key = key
        if self.is_on:
            signal.alarm(min(self.deadlines[key], LONGEST) if key else 0)

    @contextlib.contextmanager
    def watch(self, key: str):
        """Sets a deadline for the context, and then starts the previous one again."""
        before = self.key
        self.arm(key)
        try:
            yield
        finally:
            self.arm(before)
