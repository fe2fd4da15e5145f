"""Where the time of a run goes, from one line of its metrics to the next."""

import time
from contextlib import contextmanager

# What two lines of metrics.jsonl need not have in common where they are of the same steps.
TIMES = frozenset(
    "time seconds step_seconds input_seconds tokens_per_second rows_per_second model_flops_utilization"
    " peak_bytes".split()
)


class Clock:
    """Times an interval of steps, from one line of metrics to the next, and its waits for batches."""

    def __init__(self):
        self.start()

    def start(self) -> None:
        """An interval begins."""
        self.began, self.waited = time.monotonic(), 0.0

    @contextmanager
    def input(self):
        before = time.monotonic()
        yield
        self.waited += time.monotonic() - before

    @contextmanager
    def outside(self):
        """What is done within is no part of the interval."""
        before = time.monotonic()
        yield
        self.began += time.monotonic() - before

    def split(self, steps: int) -> dict:
        """What a line says of the interval of so many steps that ends now; the next one begins."""
        seconds, waited = time.monotonic() - self.began, self.waited
        self.start()
        return {"seconds": seconds, "step_seconds": seconds / steps, "input_seconds": waited}


def describe(values: dict) -> str:
    """A line's numbers of speed, for people; without those that nobody knows."""
    share = values["real_token_share"]  # of no step, where none was applied
    parts = [] if share is None else [f"real_token_share {share:.3f}"]
    parts += [
        f"step {values['step_seconds']:.4g} s",
        f"input {values['input_seconds']:.3g} s",
    ]
    if values["model_flops_utilization"] is not None:
        parts.append(f"utilization {values['model_flops_utilization']:.3f}")
    if values["peak_bytes"] is not None:
        parts.append(f"peak {values['peak_bytes'] / 2**30:.2f} GiB")
    return "  ".join(parts)
