"""Waiting for something that another thread or process does."""

import time

POLL = 0.05  # seconds


def wait_until(condition, seconds=60):
    """The first true value of condition(); raises TimeoutError where none comes in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true after {seconds} s")
        time.sleep(POLL)
    return value
