"""Profiler traces of chosen steps, written under the workdir for TensorBoard, XProf or Perfetto."""

import contextlib
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
        self.running, self.first = False, 0
        self.written = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.running:
            self.stop()

    def changes(self, step: int) -> bool:
        """Whether a trace begins or ends before this step."""
        return (step in self.steps) != self.running

    def change(self, step: int) -> None:
        """To be called once the steps before it are done."""
        if self.running:
            if self.stop():
                self.tell(f"trace of steps {self.first} to {step - 1}: {self.directory}")
        else:
            self.running, self.first = True, step
            self.attempt(lambda: jax.profiler.start_trace(str(self.directory)))

    def named(self, step: int):
        """A context for the dispatch of a step, by which readers of a trace tell steps apart."""
        if self.running:
            return jax.profiler.StepTraceAnnotation("train", step_num=step)
        return contextlib.nullcontext()

    def stop(self) -> bool:
        """Whether the trace was written."""
        self.running = False
        self.written = self.attempt(jax.profiler.stop_trace)
        return self.written

    def attempt(self, function) -> bool:
        try:
            function()
            return True
        except Exception as error:  # of the profiler: a full disk, another trace in this process
            self.steps, self.running = range(0), False
            self.tell(f"{self.directory}: no trace ({one_line(error, LONGEST)})")
            return False
