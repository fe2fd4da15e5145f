"""A deadline for whatever a process is doing, kept by a small process beside it: it ends one that is stuck.

A process that is stopped, waits for others in a collective, or is stuck in C with Python's lock held cannot end itself.
So this file is also a program of its own, which imports nothing but the standard library: it hears by a pipe what is
being done and for how long that may take, and at a deadline has the stacks of all threads written, and kills.
"""

import contextlib
import faulthandler
import os
import select
import signal
import subprocess
import sys
import time

STACKS = signal.SIGUSR2  # neither JAX nor TensorFlow takes it
# A terminal or a scheduler sends these to all processes of a job; a parent may take its time to save.
FOR_PARENTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOMENT = 3.0  # seconds from asking for the stacks to the kill: in which the other processes of a run reach it, too
TICK = 1.0  # seconds
# What is being done under each key of `config.deadlines`.
DOING = {
    "compile": "getting ready for the first step",
    "step": "a step",
    "save": "saving or restoring",
    "evaluate": "an evaluation",
}


class Guardian:
    """Used as a context. Whatever becomes of the small process, training goes on."""

    def __init__(self, deadlines: dict, name: str = ""):
        """deadlines: {key: seconds, 0 for none}. name: of this process, where a run has several."""
        self.deadlines, self.name = dict(deadlines), name
        self.key = ""  # what has a deadline now
        self.child, self.pipe = None, -1

    def __enter__(self):
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)  # for the stacks of a process that JAX aborts
        faulthandler.register(STACKS, file=2, all_threads=True, chain=False)
        read, self.pipe = os.pipe()
        os.set_blocking(self.pipe, False)  # a small process that is stopped does not read
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.name]
        with open(read) as end, blocked(FOR_PARENTS):
            self.child = subprocess.Popen(command, stdin=end, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.close()
        self.child.kill()  # it would end by itself, but not if it is stopped
        self.child.wait()
        faulthandler.unregister(STACKS)

    def arm(self, key: str) -> None:
        """Starts a deadline, from now on; it replaces the one before. "" is none."""
        self.key = key
        seconds = self.deadlines[key] if key else 0
        late = f"{DOING[key]} took longer than {seconds} s (config.deadlines.{key})" if key else ""
        self.tell(f"{seconds} {late}\n")

    @contextlib.contextmanager
    def watch(self, key: str):
        """A deadline for what is done within; then that of before starts again."""
        before = self.key
        self.arm(key)
        try:
            yield
        finally:
            self.arm(before)

    def tell(self, line: str) -> None:
        if self.pipe < 0:
            return
        try:
            os.write(self.pipe, line.encode())
        except BlockingIOError:
            pass  # nobody reads, for now
        except OSError:
            self.close()
            print("bert-jax: the process that keeps deadlines is gone", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
        self.pipe = -1


@contextlib.contextmanager
def blocked(numbers):
    """Signals wait; a process that is started within never hears of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def keep(process: int, name: str) -> None:
    """The small process: counts the seconds of what `process`, its parent, is doing; ends with it."""
    left, late, text = 0, "", ""
    while os.getppid() == process:
        # Ticks are counted and not the time: neither Ctrl-Z, which stops this process too, nor a machine that sleeps
        # are the parent's fault.
        readable, _, _ = select.select([0], [], [], TICK)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, text = (text + data.decode()).split("\n")
            for line in lines:
                seconds, _, late = line.partition(" ")
                left = int(seconds)
        elif left:
            left -= 1
            if not left:
                end(process, f"{name}: {late}" if name else late)
                return


def end(process: int, reason: str) -> None:
    if select.select([], [2], [], 0)[1]:  # a pipe that nobody empties may be what it is stuck in
        with contextlib.suppress(OSError):
            os.write(2, f"bert-jax: {reason}; its stacks follow, and it is killed\n".encode())
    for number in (STACKS, signal.SIGCONT):
        os.kill(process, number)
    time.sleep(MOMENT)
    if os.getppid() == process:
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    with contextlib.suppress(ProcessLookupError):  # the parent has ended meanwhile
        keep(int(sys.argv[1]), sys.argv[2])
