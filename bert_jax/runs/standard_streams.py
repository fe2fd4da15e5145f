"""Standard streams: those that a process was started without, and readers that leave before a run ends."""

import contextlib
import os
import sys

LONGEST = 900  # characters of a complaint


def open_closed() -> None:
    """Opens the standard streams that this process was started without, as by `>&-`, onto nothing: the next file would
    get the number of one, and what libraries print would be written into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


class Lasting:
    """A text stream of which is dropped what cannot be written any more: a run outlives the reader of its log."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name: str):
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError as error:
            self.drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.drop(error)

    def drop(self, error: OSError) -> None:
        """What waits to be written; where the reader has left, all that comes, too, also from libraries in C++."""
        number = self.stream.fileno()
        before, nothing = os.dup(number), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, number)
        self.stream.flush()
        if not isinstance(error, BrokenPipeError):
            os.dup2(before, number)  # a full disk may have room again
        os.close(before)
        os.close(nothing)


@contextlib.contextmanager
def lasting():
    """Within it nothing fails because standard output or standard error cannot be written."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(Lasting, before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def complain(text: str) -> None:
    """A line on standard error, without the middle of what is too long to be read; where it cannot be written, the exit
    code still says what it says."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    with lasting():
        print(f"bert-jax: {text}", file=sys.stderr)
