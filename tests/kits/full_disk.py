"""Simulates a full disk for this process."""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(room: int):
    """A context in which no file can grow beyond `room` bytes: a write raises OSError."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
