"""Times of a run between two lines of its metrics."""

import time
from contextlib import contextmanager

# The keys of metrics.jsonl that differ between two runs of the same steps.
TIMES = {
    "time",
    "seconds",
    "step_seconds",
    "input_seconds",
    "tokens_per_second",
    "rows_per_second",
    "model_flops_utilization",
    "peak_bytes",
}


class Clock:
    """A clock for the interval between two lines of metrics, and for its waits for batches."""

    def __init__(self):
        self.start()

    def start(self) -> None:
        """Starts an interval."""
        self.began = time.monotonic()
        self.waited = 0.0

    @contextmanager
    def input_wait(self):
        """Counts the time within the context as a wait for a batch."""
        before = time.monotonic()
        yield
        self.waited += time.monotonic() - before

    @contextmanager
    def paused(self):
        """Excludes the time within the context from the interval."""
        before = time.monotonic()
        yield
        self.began += time.monotonic() - before

    def split(self, steps: int) -> dict:
        """Ends an interval, in which `steps` steps ran, and starts the next; returns its times in seconds.

        `seconds` and `input_seconds` (the waits for batches) are those of all steps, `step_seconds` is the mean.
        """
        seconds = time.monotonic() - self.began
        waited = self.waited
        self.start()
        return {"seconds": seconds, "step_seconds": seconds / steps, "input_seconds": waited}
