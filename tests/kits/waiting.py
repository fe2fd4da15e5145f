"""Waits for another thread or process."""

import time

POLL = 0.05  # seconds


def wait_until(condition, seconds=60):
    """Returns the first true value of condition(); raises TimeoutError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true after {seconds} s")
        time.sleep(POLL)
    return value
