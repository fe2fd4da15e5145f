"""The training loop: restore, step, report, evaluate, save.

This file decides the order. step.py and the objective compute, runs/report.py reports.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
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
from bert_jax.data.batch import check_ids
from bert_jax.errors import Unfinished
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.processes import Cluster
from bert_jax.runs import metrics, open_run, out_of_memory, profiler, report, signals, timing
from bert_jax.runs.watchdog import Watchdog
from bert_jax.runs.workdir import TRACES, Workdir
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import SavedFeed, StoreFeed

Data = StoreFeed | SavedFeed


class Actions(NamedTuple):
    """The actions after a step, in this order."""

    report: bool
    save: bool
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
        compare=not save and is_time(config.checkpoint.compare),
        evaluate=evaluate and not is_stopped,
    )


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
        self.phases = configs.phases(self.config)
        self.last_step = self.phases[-1].stop
        self.evaluated = {}  # {(phase, split): evaluate.Batches}; tf.data needs seconds to start one
        self.combine = jax.jit(metrics.add, donate_argnums=0)
        self.clock = timing.Clock()
        traced_steps = self.config.profile.steps if self.processes.is_main else ()
        self.traces = profiler.Traces(
            traced_steps, self.workdir.directory / TRACES, self.reporter.log
        )
        # Both wait for the next dispatch: (step, verdict) of the last step, and what `report` writes.
        self.verdict = self.unreported = None
        self.bad_in_a_row = 0  # steps in a row that were not finite, up to the last fetched verdict
        self.kept_steps = []  # the steps of the best checkpoints, see `best`

    def run(self, newest: Path | None) -> int:
        """Trains from the checkpoint `newest`, or from the initial state if None; returns the exit code."""
        keep = self.config.checkpoint.keep, self.config.checkpoint.keep_every, self.kept_steps
        with (
            jax.set_mesh(self.trainer.mesh),
            writer.manager(self.workdir.checkpoints, *keep) as self.checkpoints,
            self.processes.ending_together(),  # inside the manager, whose exit waits for the other processes
            self.explain_disk_errors(),
            self.traces,
        ):
            with self.watchdog.watch("compile" if newest is None else "save"):
                step, state = self.restore(newest)
            self.reporter.start(step, self.trainer.compile_seconds)
            stopped = self.stop.requested()
            if newest is not None and not stopped:
                stopped = not self.evaluate_missed(step, state.params) or self.is_over()
            for phase in self.phases:
                if step < phase.stop and not stopped:
                    # Some devices report only at run time that they are out of memory.
                    with out_of_memory.explain(f"phase {phase.name}"):
                        step, state, stopped = self.run_phase(phase, step, state)
            self.watchdog.arm("save")
            with self.clock.paused():
                writer.finish(self.checkpoints)
            is_last = step == self.last_step or self.is_over()
            if is_last and self.finish(step, state.params):
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
        """Returns (step, state) of a checkpoint, or the initial ones if `path` is None; saves those of another run."""
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
        """Trains until the end of the phase or a signal; returns (step, state, whether a signal came).

        Verdicts and metrics are fetched after the next step was dispatched, so that devices do not wait for the host.
        """
        train = self.trainer.train[phase.name]
        sums = None
        flops = 0.0
        stopped = False
        self.clock.start()
        self.reported = step  # that of the newest training line
        self.watchdog.arm("compile")  # the first step may wait until the row index is built
        for rows in self.batches(phase, step):
            self.trace(step, state)
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, values, verdict = train(state, rows)
            step += 1
            self.catch_up()
            self.verdict = step - 1, verdict
            sums = values if sums is None else self.combine(sums, values)
            flops += self.trainer.flops[phase.name][rows["tokens"].shape[1]]
            self.reporter.advance(step)
            # Called once per step, equally often in all processes; a later signal waits for the next step.
            stopped = self.stop.requested()
            actions = due(step, self.config, phase.stop, self.last_step, stopped)
            if actions.report:
                self.unreported = phase, step, sums, flops
                sums = None
                flops = 0.0
            if actions.save or actions.evaluate:
                self.catch_up()
            # If the last step was not finite, its parameters may be bad: keep the older checkpoint, save no new one.
            is_end = stopped or step == phase.stop
            saves = actions.save and (is_end or not self.bad_in_a_row)
            if saves:
                self.save(step, state)
            elif actions.compare and self.trainer.mesh.size > 1:
                self.fingerprints(step, state)
            if actions.evaluate and (saves or not self.config.evaluate.patience):
                stopped = not self.evaluate(phase, step, state.params) or self.is_over()
                if stopped and not saves:
                    self.save(step, state)
            if stopped:
                break
            self.watchdog.arm("step")  # the deadline includes the wait for the next batch
        if self.traces.running:
            self.trace(step, state)
        return step, state, stopped

    def catch_up(self) -> None:
        """Fetches the pending verdict, and writes the pending report; called after each dispatch.

        Fetching waits for the previous step, so at most two steps are in flight: signals are handled soon, and batches
        do not fill the memory.
        """
        verdict, unreported = self.verdict, self.unreported
        self.verdict = self.unreported = None
        if verdict:
            self.check_verdict(*verdict)
        if unreported:
            self.report(*unreported)

    def batches(self, phase, step: int) -> Iterator[dict]:
        """Yields the global batches of a phase from `step` on, built from this host's rows."""
        mesh = self.trainer.mesh
        positions = meshes.host_rows(mesh, phase.batch)
        data = iter(self.data.train(phase, step, phase.stop, positions))
        size = self.data.vocabulary.size
        ranges = tasks.make(self.config).ranges(size)
        while True:
            with self.clock.input_wait():
                arrays = next(data, None)
                if arrays is None:
                    return
                check_ids(self.config, size, arrays, ranges)
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
        self.bad_in_a_row = int(verdict.bad_in_a_row)
        if self.bad_in_a_row < min(self.config.guard.stop_after, self.last_step):
            return
        first = step - self.bad_in_a_row + 1
        command = f"bert-jax inspect --config {self.workdir.name} --step {first}"
        raise FloatingPointError(
            f"steps {first} to {step}: {step_guard.reason(verdict)}, {self.bad_in_a_row} steps in a row"
            f" (see config.guard.stop_after); to see the first batch: {command}"
        )

    def report(self, phase, step: int, sums, flops: float) -> None:
        """Writes one line of training metrics: means over the steps applied since the previous line.

        flops: of all steps since then.
        """
        writer.check(self.checkpoints)
        sums = jax.device_get(sums)
        times = self.clock.split(step - self.reported)
        self.reported = step
        seconds = times["seconds"]
        devices = self.trainer.mesh.devices.flatten()
        values = metrics.means(sums)
        values |= {
            "learning_rate": float(self.trainer.rate(step - 1)),
            "tokens_per_second": float(sums["real_token_share"][0]) / seconds,
            "rows_per_second": float(sums["loss"][1]) * phase.batch / seconds,
            "model_flops_utilization": chips.utilization(flops / seconds, devices),
            **times,
            "peak_bytes": chips.peak_bytes(self.trainer.mesh.local_devices),
        }
        self.reporter.report(step, "train", values)

    def evaluate(self, phase, step: int, params) -> bool:
        """Writes a line of metrics for each split that is evaluated and has no line of this step; returns False if a
        signal came before all were written. The next start then evaluates the others."""
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
                values = evaluate.measure(program, params, batches, self.stop.requested)
                if values is None:
                    return False
                values["seconds"] = time.monotonic() - started
                if self.config.evaluate.metric and split == self.data.splits[0]:
                    arrays = multihost_utils.process_allgather(params, tiled=True)
                    if self.processes.is_main:
                        run = self.workdir.directory
                        model = open_run.with_params(run, self.config, step, arrays)
                        values |= evaluate.user_metrics(model, values)
                self.reporter.report(step, split, values)
        return True

    def evaluate_missed(self, step: int, params) -> bool:
        """Evaluates the restored state if its step was due for an evaluation that was not done: the run stopped before
        it, or the state is an import (step 0), whose loss is the baseline. Returns False if a signal came."""
        if step == 0 or due(step, self.config, self.last_step, self.last_step, False).evaluate:
            return self.evaluate(configs.phase_at(self.config, step), step, params)
        return True

    def is_over(self) -> bool:
        """Returns whether the run ends early, see `evaluate.patience`."""
        return metrics.is_over(self.config, self.best())

    def best(self) -> dict:
        """Returns the best evaluation, see `metrics.best`. From now on, its checkpoint is kept, and with
        `checkpoint.keep_best` those of so many best ones."""
        found = self.config, self.reporter.read(), self.checkpoints.all_steps()
        best = metrics.best(*found)
        kept = metrics.ranking(*found)[: self.config.checkpoint.keep_best]
        steps = [each["step"] for each in (best, *kept) if each]
        self.kept_steps[:], best = self.processes.from_main((steps, best))
        return best

    def save(self, step: int, state) -> None:
        """Starts saving a checkpoint, after comparing the devices' copies of the state."""
        with self.clock.paused():
            with self.watchdog.watch("save"):
                leaves = self.fingerprints(step, state)
                self.workdir.upload()  # first, so that every checkpoint has its lines of metrics
                writer.save(self.checkpoints, step, reader.items(state), leaves, self.id)

    def finish(self, step: int, params) -> bool:
        """Evaluates the last step and writes the summary; returns False if a signal came before that."""
        if not self.evaluate(self.phases[-1], step, params):
            return False
        if step < self.last_step:
            self.reporter.log(f"ends early, after step {step}: see config.evaluate.patience")
        self.reporter.summarize(self.best())
        return True
