"""Profiler traces of configured steps, written to the workdir for TensorBoard, XProf or Perfetto."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import jax

from bert_jax.errors import one_line


class Traces(AbstractContextManager):
    """The profiler's traces of the steps first..last-1 in this process. Its errors are logged and do not end the run.

    A context manager, so that a run that ends during a trace writes it.
    """

    def __init__(self, steps: tuple, directory: Path, log: Callable[[str], None]):
        """steps: () or (first, last)."""
        self.steps = range(*steps) if steps else range(0)
        self.directory = directory
        self.log = log
        self.running = False

    def __exit__(self, *_):
        if self.running:
            self.toggle(self.steps.stop)

    def is_due(self, step: int) -> bool:
        """Returns whether a trace starts or stops before this step."""
        return (step in self.steps) != self.running

    def toggle(self, step: int) -> None:
        """Starts or stops a trace. To be called when all steps before `step` are complete."""
        try:
            if self.running:
                self.running = False
                jax.profiler.stop_trace()
                self.log(f"trace of steps up to {step - 1}: {self.directory}")
            else:
                jax.profiler.start_trace(str(self.directory))
                self.running = True
        except Exception as error:  # such as a full disk, or another trace in this process
            self.steps = range(0)
            self.log(f"{self.directory}: no trace ({one_line(error)})")
