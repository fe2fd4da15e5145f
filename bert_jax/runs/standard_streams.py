"""Standard streams: those that are closed at the start, and readers that leave before a run ends."""

import contextlib
import os
import sys

LONGEST = 900  # characters of a complaint


def open_closed() -> None:
    """Opens the standard streams that this process was started without, as by `>&-`, onto nothing: the next file would
    get the number of one, and what libraries print would be written into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(
                os.open(os.devnull, os.O_RDWR), True
            )  # the lowest number that is free
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


class Lasting:
    """A text stream that drops what cannot be written: a run outlives the reader of its log."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name: str):
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.flush()


@contextlib.contextmanager
def lasting():
    """Within it nothing fails because standard output or standard error cannot be written."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(Lasting, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        drop_unwritten()


def drop_unwritten() -> None:
    """Flushes both streams. Drops what cannot be written, or the process would end with another exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(text: str) -> None:
    """A line on standard error, without the middle of what is too long to be read."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    with lasting():
        print(f"bert-jax: {text}", file=sys.stderr)
