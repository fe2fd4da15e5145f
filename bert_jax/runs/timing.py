"""Where the time of a run goes, from one line of its metrics to the next.

Nothing here asks the devices for anything: a step has ended when the loop, which hears of every step, has heard of it.
"""

import statistics
import time
from contextlib import contextmanager

# What two lines of metrics.jsonl need not have in common where they are of the same steps.
TIMES = frozenset(
    "time seconds tokens_per_second rows_per_second model_flops_utilization step_seconds slowest_step_seconds"
    " input_seconds save_seconds peak_bytes slowest_host slowest_host_seconds".split()
)
INPUT, DEVICES, SAVE = "input", "devices", "save"  # what the loop waits for


class Clock:
    """Times an interval of steps, from one line of metrics to the next, and what the loop waits for meanwhile."""

    def __init__(self):
        self.spent = dict.fromkeys((INPUT, DEVICES, SAVE), 0.0)
        self.steps = []  # seconds of each
        self.start()

    def start(self) -> None:
        """An interval begins, and its first step."""
        self.began = self.marked = time.monotonic()

    @contextmanager
    def waiting(self, what: str):
        before = time.monotonic()
        yield
        self.spent[what] += time.monotonic() - before

    @contextmanager
    def outside(self, what: str = ""):
        """What is done within is no part of the interval."""
        before = time.monotonic()
        yield
        passed = time.monotonic() - before
        self.began, self.marked = self.began + passed, self.marked + passed
        if what:
            self.spent[what] += passed

    def step(self) -> None:
        """The loop has heard of a step. With steps in flight, from one to the next is what a step takes."""
        before, self.marked = self.marked, time.monotonic()
        self.steps.append(self.marked - before)

    def split(self) -> tuple[dict, float]:
        """What a line says of the interval that ends now, and the seconds of it in which this host did not wait for the
        devices: waits for input, and its own work. The next interval begins."""
        now = time.monotonic()
        seconds, self.began = now - self.began, now
        values = {
            "seconds": seconds,
            "step_seconds": statistics.median(self.steps),
            "slowest_step_seconds": max(self.steps),
            "input_seconds": self.spent[INPUT],
            "save_seconds": self.saved(),
        }
        busy = seconds - self.spent[DEVICES]
        self.steps, self.spent = [], dict.fromkeys(self.spent, 0.0)
        return values, busy

    def saved(self) -> float:
        """Seconds of saves since this was asked before; every line, of either split, says them."""
        seconds, self.spent[SAVE] = self.spent[SAVE], 0.0
        return seconds


def slowest(busy: list[float]) -> dict:
    """Of several processes the one that is busiest beside its devices, and by how many seconds more than the middle
    one: in every step all wait for the last, so their steps take the same time."""
    if len(busy) < 2:
        return {}
    number = max(range(len(busy)), key=busy.__getitem__)
    return {
        "slowest_host": number,
        "slowest_host_seconds": busy[number] - statistics.median_low(busy),
    }


def describe(values: dict) -> str:
    """A line's numbers of speed, for people; without those that nobody knows."""
    fill = values["fill"]  # of no step, where none was applied
    parts = [] if fill is None else [f"fill {fill:.3f}"]
    parts += [
        f"step {values['step_seconds']:.4g} s (slowest {values['slowest_step_seconds']:.4g})",
        f"input {values['input_seconds']:.3g} s",
    ]
    if values["model_flops_utilization"] is not None:
        parts.append(f"utilization {values['model_flops_utilization']:.3f}")
    if values["peak_bytes"] is not None:
        parts.append(f"peak {values['peak_bytes'] / 2**30:.2f} GiB")
    if "slowest_host" in values:
        host, by = values["slowest_host"], values["slowest_host_seconds"]
        parts.append(f"slowest host {host} by {by:.3g} s")
    return "  ".join(parts)
