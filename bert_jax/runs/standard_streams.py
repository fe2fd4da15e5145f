"""Standard streams whose readers leave before a run ends."""

import contextlib
import os
import sys

LONGEST = 900  # characters of a complaint


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


def close() -> None:
    """Flushes both streams; what cannot be written is dropped, or Python would end the process with another code."""
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
