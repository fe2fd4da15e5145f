"""Profiler traces of chosen steps, written under the workdir for TensorBoard, XProf or Perfetto."""

from collections.abc import Callable
from pathlib import Path

import jax

from bert_jax.errors import one_line

LONGEST = 300  # characters of what a library says


class Traces:
    """Traces the steps first..last-1 of a run as they come, in this process. What goes wrong is told: it does not end
    the run. Used as a context, so that a run that ends among them leaves what there is."""

    def __init__(self, steps: tuple, directory: Path, tell: Callable[[str], None]):
        """steps: () or (first, last)."""
        self.steps = range(*steps) if steps else range(0)
        self.directory, self.tell = directory, tell
        self.running = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.running:
            self.change(self.steps.stop)

    def changes(self, step: int) -> bool:
        """Whether a trace begins or ends before this step."""
        return (step in self.steps) != self.running

    def change(self, step: int) -> None:
        """To be called once the steps before it are done."""
        try:
            if self.running:
                self.running = False
                jax.profiler.stop_trace()
                self.tell(f"trace of steps up to {step - 1}: {self.directory}")
            else:
                jax.profiler.start_trace(str(self.directory))
                self.running = True
        except Exception as error:  # of the profiler: a full disk, another trace in this process
            self.steps = range(0)
            self.tell(f"{self.directory}: no trace ({one_line(error, LONGEST)})")
