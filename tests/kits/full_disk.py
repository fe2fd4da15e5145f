"""A disk that is full, for this process."""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(room: int):
    """Within it no file grows over `room` bytes: a write raises OSError."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
