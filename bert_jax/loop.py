"""The training loop: restore, step, report, evaluate, save.

This file decides the order. step.py and the objective compute, runs/report.py reports.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax import evaluate, step_guard
from bert_jax.build import Trainer
from bert_jax.checkpoints import fingerprint, reader, writer
from bert_jax.errors import Unfinished
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.cluster import Cluster
from bert_jax.runs import metrics, open_run, out_of_memory, profiler, report, signals, timing
from bert_jax.runs.watchdog import Watchdog
from bert_jax.runs.workdir import TRACES, Workdir
from bert_jax.tasks.feed import SavedFeed, StoreFeed

Data = StoreFeed | SavedFeed
add_in_place = jax.jit(metrics.add, donate_argnums=0)


class Actions(NamedTuple):
    """The actions after a step, in this order."""

    report: bool
    save: bool  # unless the step was not finite
    must_save: bool  # in any case: the phase or the run ends with the step
    compare: bool  # the devices' copies of the state
    evaluate: bool


def due(step: int, config, phase_last: int, run_last: int, is_stopped: bool) -> Actions:
    """Returns the actions after `step` steps. phase_last, run_last: the last step of the phase and of the run."""

    def is_time(every: int) -> bool:
        return every > 0 and step % every == 0

    is_last = is_stopped or step == phase_last
    save = is_last or is_time(config.checkpoint.every)
    evaluate = is_time(config.evaluate.every) and step < run_last
    return Actions(
        report=save or evaluate or is_time(config.log.every),
        save=save,
        must_save=is_last,
        compare=not save and is_time(config.checkpoint.compare),
        evaluate=evaluate and not is_stopped,
    )


class EvaluationEnd(Enum):
    """How an evaluation ended."""

    COMPLETE = "complete"  # each split has its line of metrics
    STOPPED = "stopped"  # a signal came first; the next start evaluates the other splits


@dataclass
class Progress:
    """The results of the steps since the last line of training metrics, and what the host knows of earlier ones."""

    steps: int = 0
    sums: dict | None = None  # of their metrics, {name: (sum, weight)}, on the devices
    flops: float = 0.0
    verdict: step_guard.Verdict | None = None  # on the last step, until the host has read it
    is_line_due: bool = False  # whether a line ends with the last step
    bad_in_a_row: int = 0  # steps that were not finite, up to the last verdict that was read
    best_steps: list[int] = field(default_factory=list)  # of the best checkpoints, see `find_best`


@dataclass
class Loop:
    """The remaining steps of a run: dispatches them, and acts after them as `due` says."""

    config: ConfigDict
    workdir: Workdir
    data: Data
    trainer: Trainer
    reporter: report.Reporter  # silent in all processes but the first
    processes: Cluster
    watchdog: Watchdog
    stop: signals.StopRequest
    id: str  # of the run; its checkpoints carry it

    def __post_init__(self):
        self.last_step = configs.total_steps(self.config)
        self.progress = Progress()
        self.clock = timing.Clock()
        self.evaluated = {}  # {(phase, split): evaluate.Batches}; tf.data needs seconds to start one
        traced_steps = self.config.profile.steps if self.processes.is_main else ()
        self.traces = profiler.Traces(
            traced_steps, self.workdir.directory / TRACES, self.reporter.log
        )

    def run(self, newest: Path | None) -> int:
        """Trains from the checkpoint `newest`, or from the initial state if None; returns the exit code."""
        phases = configs.phases(self.config)
        keep = self.config.checkpoint
        with (
            jax.set_mesh(self.trainer.mesh),
            writer.manager(
                self.workdir.checkpoints, keep.keep, keep.keep_every, self.progress.best_steps
            ) as self.checkpoints,
            self.processes.ending_together(),  # inside the manager, whose exit waits for the other processes
            self.explain_disk_errors(),
            self.traces,
        ):
            with self.watchdog.watch("compile" if newest is None else "save"):
                step, state = self.restore(newest)
            self.reporter.start(step, self.trainer.compile_seconds)
            ends = self.stop.requested()
            if newest is not None and not ends:
                ends = self.ends_after(self.evaluate_missed(step, state.params))
            for phase in phases:
                if step < phase.stop and not ends:
                    # Some devices report only at run time that they are out of memory.
                    with out_of_memory.explain(f"phase {phase.name}"):
                        step, state, ends = self.run_phase(phase, step, state)
            self.watchdog.arm("save")
            writer.finish(self.checkpoints)
            if step == self.last_step or self.is_over():
                if self.evaluate(phases[-1], step, state.params) is EvaluationEnd.COMPLETE:
                    self.summarize(step)
                    return 0
            return self.stop.code

    @contextlib.contextmanager
    def explain_disk_errors(self):
        """Turns an OSError, such as that of a full disk, into Unfinished, which names the last checkpoint."""
        try:
            yield
        except OSError as error:
            path = error.filename or self.workdir.name
            reason = error.strerror or error
            last = writer.name_last(self.checkpoints.directory)
            raise Unfinished(f"{path}: {reason}; {last}") from None

    def restore(self, path: Path | None):
        """Returns (step, state) of a checkpoint, or the initial ones if `path` is None. A checkpoint of another run is
        saved here, too."""
        if path is None:
            return 0, self.trainer.initialize()
        step = int(path.name)
        shapes, shardings = self.trainer.shapes, self.trainer.shardings
        if step == 0:
            self.reporter.log("starts from imported parameters")
            names = ("params",)
            state = self.trainer.initialize()
        else:
            self.reporter.log(f"resumed from step {step}")
            names = reader.ITEMS
            state = shapes._replace(step=jax.device_put(jnp.int32(step), shardings.step))
        state = state._replace(**reader.restore(path, names, shapes, shardings))
        leaves = self.fingerprints(step, state)
        reader.check_restored(path, {key: leaves[key] for key in leaves if key.startswith(names)})
        if path.parent != self.workdir.checkpoints:
            # That run may delete its checkpoint before this one would save its first.
            writer.save(self.checkpoints, step, reader.items(state), leaves, self.id)
            writer.finish(self.checkpoints)
        return step, state

    def fingerprints(self, step: int, state) -> dict:
        """Returns the fingerprint of every array of the state. Raises Unfinished or FloatingPointError, with the last
        checkpoint, if devices disagree or a value is not finite."""
        items = reader.items(state)
        try:
            return fingerprint.compute(self.trainer.fingerprint, items, self.trainer.mesh)
        except (FloatingPointError, Unfinished) as error:
            last = writer.name_last(self.checkpoints.directory)
            raise type(error)(f"step {step}: {error}; {last}") from None

    def run_phase(self, phase, step: int, state):
        """Trains until the phase or the run ends; returns (step, state, whether the run ends).

        The host dispatches a step before it reads the results of the step before, so that the devices do not wait for
        it. Before a save it reads those of the last step, too. For example, 4 steps with log.every=2:

            dispatch step 1
            dispatch step 2    read the verdict on step 1
            dispatch step 3    read the verdict on step 2, write the line of steps 1 and 2
            dispatch step 4    read the verdict on step 3
                               read the verdict on step 4, write the line of steps 3 and 4, save
        """
        train = self.trainer.train[phase.name]
        progress = self.progress
        ends = False
        self.clock.start()
        self.watchdog.arm("compile")  # the first step may wait until the row index is built
        for rows in self.batches(phase, step):
            self.trace(step, state)
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, values, verdict = train(state, rows)
            self.read_results(phase, step)  # of the step before
            step += 1
            progress.verdict = verdict
            progress.steps += 1
            progress.sums = values if progress.sums is None else add_in_place(progress.sums, values)
            progress.flops += self.trainer.flops[phase.name][rows["tokens"].shape[1]]
            self.reporter.advance(step)
            # Called once per step, equally often in all processes; a later signal waits for the next step.
            stopped = self.stop.requested()
            actions = due(step, self.config, phase.stop, self.last_step, stopped)
            progress.is_line_due = actions.report
            ends = self.act(actions, phase, step, state) or stopped
            if ends:
                break
            self.watchdog.arm("step")  # the deadline includes the wait for the next batch
        if self.traces.running:
            self.trace(step, state)
        return step, state, ends

    def read_results(self, phase, step: int) -> None:
        """Reads the verdict on the last of the first `step` steps, and writes the line that ends with it, if one does;
        if it was read before, does nothing.

        Reading waits for that step. After each dispatch, it leaves at most two steps in flight: signals are handled
        soon, and batches do not fill the memory.
        """
        progress = self.progress
        if progress.verdict is None:
            return
        self.check_verdict(step - 1, progress.verdict)
        progress.verdict = None
        if progress.is_line_due:
            self.report(phase, step)
            progress.steps = 0
            progress.sums = None
            progress.flops = 0.0

    def act(self, actions: Actions, phase, step: int, state) -> bool:
        """Saves, compares and evaluates after a step; returns whether the evaluation ends the run."""
        if actions.save or actions.evaluate:
            self.read_results(phase, step)
        # If the step was not finite, its parameters may be bad: keep the older checkpoint, save no new one.
        saves = actions.must_save or (actions.save and not self.progress.bad_in_a_row)
        if saves:
            self.save(step, state)
        elif actions.compare and self.trainer.mesh.size > 1:
            self.fingerprints(step, state)
        # With patience, an evaluation may be the best one, whose checkpoint is kept.
        if not actions.evaluate or (self.config.evaluate.patience and not saves):
            return False
        ends = self.ends_after(self.evaluate(phase, step, state.params))
        if ends and not saves:
            self.save(step, state)
        return ends

    def batches(self, phase, step: int) -> Iterator[dict]:
        """Yields the global batches of a phase from `step` on, built from this host's rows."""
        mesh = self.trainer.mesh
        positions = meshes.host_rows(mesh, phase.batch)
        data = iter(self.data.train(phase, step, phase.stop, positions))
        check = evaluate.id_check(self.data, self.config)
        while True:
            with self.clock.input_wait():
                arrays = next(data, None)
                if arrays is None:
                    return
                check(arrays)
                rows = meshes.to_devices(mesh, arrays, positions, phase.batch)
            yield rows

    def trace(self, step: int, state) -> None:
        """Starts or stops the profiler before a step if that is configured, with no step in flight."""
        if self.traces.is_due(step):
            jax.block_until_ready(state)
            # Writing a trace may take as long as a save, so it has the same deadline.
            with self.clock.paused(), self.watchdog.watch("save"):
                self.traces.toggle(step)

    def check_verdict(self, step: int, verdict: step_guard.Verdict) -> None:
        """Logs a step that was skipped or is suspect. Raises FloatingPointError after too many consecutive ones that
        were not finite."""
        verdict = jax.device_get(verdict)
        if text := step_guard.describe(step, verdict):
            self.reporter.log(text)
        bad_in_a_row = self.progress.bad_in_a_row = int(verdict.bad_in_a_row)
        if bad_in_a_row < min(self.config.guard.stop_after, self.last_step):
            return
        first = step - bad_in_a_row + 1
        command = f"bert-jax inspect --config {self.workdir.name} --step {first}"
        raise FloatingPointError(
            f"steps {first} to {step}: {step_guard.reason(verdict)}, {bad_in_a_row} steps in a row"
            f" (see config.guard.stop_after); to see the first batch: {command}"
        )

    def report(self, phase, step: int) -> None:
        """Writes a line of training metrics: means over the steps applied since the previous line."""
        writer.check(self.checkpoints)
        sums = jax.device_get(self.progress.sums)
        times = self.clock.split(self.progress.steps)
        seconds = times["seconds"]
        devices = self.trainer.mesh.devices.flatten()
        values = metrics.means(sums) | {
            "learning_rate": float(self.trainer.rate(step - 1)),
            "tokens_per_second": float(sums["real_token_share"][0]) / seconds,
            "rows_per_second": float(sums["loss"][1]) * phase.batch / seconds,
            "model_flops_utilization": chips.utilization(self.progress.flops / seconds, devices),
            **times,
            "peak_bytes": chips.peak_bytes(self.trainer.mesh.local_devices),
        }
        self.reporter.report(step, "train", values)

    def evaluate(self, phase, step: int, params) -> EvaluationEnd:
        """Writes a line of metrics for each split that is evaluated and has no line of this step."""
        for split in self.data.splits:
            started = time.monotonic()
            key = phase.name, split
            with self.clock.paused(), self.watchdog.watch("evaluate"):
                if self.processes.from_main(self.reporter.has_line(step, split)):
                    continue
                if key not in self.evaluated:
                    self.evaluated[key] = evaluate.Batches(
                        self.data, self.config, phase, split, self.trainer.mesh
                    )
                program = self.trainer.evaluate[phase.name]
                batches = self.evaluated[key]
                measured = evaluate.measure(program, params, batches, self.stop.requested)
                if measured is None:
                    return EvaluationEnd.STOPPED
                values = measured.values
                values["seconds"] = time.monotonic() - started
                if self.config.evaluate.metric and split == self.data.splits[0]:
                    arrays = multihost_utils.process_allgather(params, tiled=True)
                    if self.processes.is_main:
                        run = self.workdir.directory
                        model = open_run.with_params(run, self.config, step, arrays)
                        values |= evaluate.user_metrics(model, values)
                self.reporter.report(step, split, values)
                if split == self.data.splits[0]:
                    self.reporter.show(step, split, measured.guesses, measured.review)
        return EvaluationEnd.COMPLETE

    def evaluate_missed(self, step: int, params) -> EvaluationEnd:
        """Evaluates the restored state if its step was due for an evaluation that was not done: the run stopped before
        it, or the state is an import (step 0), whose loss is the baseline."""
        if step == 0 or due(step, self.config, self.last_step, self.last_step, False).evaluate:
            return self.evaluate(configs.phase_at(self.config, step), step, params)
        return EvaluationEnd.COMPLETE

    def ends_after(self, evaluation: EvaluationEnd) -> bool:
        """Returns whether the run ends after an evaluation: by a signal, or early."""
        return evaluation is EvaluationEnd.STOPPED or self.is_over()

    def is_over(self) -> bool:
        """Returns whether the run ends early, see `evaluate.patience`."""
        return metrics.is_over(self.config, self.find_best())

    def find_best(self) -> dict:
        """Returns the best evaluation, see `metrics.best`. From now on, its checkpoint is kept, and with
        `checkpoint.keep_best` those of so many best ones."""
        found = self.config, self.reporter.read(), self.checkpoints.all_steps()
        best = metrics.best(*found)
        ranked = metrics.ranking(*found)[: self.config.checkpoint.keep_best]
        steps = [each["step"] for each in (best, *ranked) if each]
        # In place: the checkpoint manager reads this list.
        self.progress.best_steps[:], best = self.processes.from_main((steps, best))
        return best

    def save(self, step: int, state) -> None:
        """Starts saving a checkpoint, after comparing the devices' copies of the state."""
        with self.clock.paused(), self.watchdog.watch("save"):
            leaves = self.fingerprints(step, state)
            self.workdir.upload()  # first, so that every checkpoint has its lines of metrics
            writer.save(self.checkpoints, step, reader.items(state), leaves, self.id)

    def summarize(self, step: int) -> None:
        """Writes the summary after the last step."""
        if step < self.last_step:
            self.reporter.log(f"ends early, after step {step}: see config.evaluate.patience")
        self.reporter.summarize(self.find_best())
