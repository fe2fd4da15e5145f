"""The loop: restore, step, report, evaluate, save.

What is computed lives in step.py and the objective, what is told in runs/report.py; this file puts them in order.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import config as configs
from bert_jax import evaluate, step_guard
from bert_jax.build import Trainer
from bert_jax.checkpoints import fingerprint, reader, writer
from bert_jax.data.feed import SavedFeed, StoreFeed
from bert_jax.errors import BadInput, Unfinished
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import metrics, out_of_memory, run_info, timing
from bert_jax.runs.profiler import Traces
from bert_jax.runs.workdir import TRACES, Workdir

Data = StoreFeed | SavedFeed


class Actions(NamedTuple):
    """Names the actions that the loop takes after a step, in this order."""

    report: bool
    save: bool
    compare: bool  # the copies that devices hold of the state
    evaluate: bool


def due(step: int, config, phase_last: int, run_last: int, is_stopped: bool) -> Actions:
    """What comes after `step` steps; *_last: the last step of the phase and of the run."""

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


class Loop:
    """One pass through the steps that are left."""

    def __init__(
        self, config, run: Workdir, data: Data, trainer: Trainer, reporter, processes, watchdog, id
    ):
        self.config, self.workdir, self.data, self.id = config, run, data, id
        self.trainer, self.reporter, self.processes = trainer, reporter, processes
        self.watchdog = watchdog
        self.phases = configs.phases(config)
        self.heldout = {}  # of each phase that was evaluated; to trace its batches takes a while
        self.combine = jax.jit(metrics.add, donate_argnums=0)
        self.clock = timing.Clock()
        self.reported = 0  # the step of the newest line of training
        traced = config.profile.steps if processes.is_main else ()
        self.traces = Traces(traced, run.directory / TRACES, reporter.log)
        self.verdict = self.unreported = None  # of the step that was dispatched last
        self.row = 0  # steps in a row, up to the last one heard of, that were not finite

    def run(self, newest: int | None, stop) -> int:
        """Trains from the checkpoint `newest` on; the exit code."""
        keep = self.config.checkpoint.keep, self.config.checkpoint.keep_every
        with (
            jax.set_mesh(self.trainer.mesh),
            writer.manager(self.workdir.checkpoints, *keep) as self.checkpoints,
            self.processes.ending_together(),  # before the manager waits for what others have to save
            self.on_disk(),
            self.traces,
        ):
            with self.watchdog.watch("compile" if newest is None else "save"):
                step, state = self.restore(newest)
            self.reporter.start(step, self.trainer.compile_seconds)
            stopped = stop.asked()
            if newest is not None and not stopped:
                stopped = not self.evaluate_missed(step, state.params, stop)
            for phase in self.phases:
                if step < phase.last and not stopped:
                    step, state, stopped = self.run_phase(phase, step, state, stop)
            self.watchdog.arm("save")
            with self.clock.outside():
                writer.finish(self.checkpoints)
            if step < self.phases[-1].last:
                if not stopped:
                    raise Unfinished(f"{self.data.path}: its batches end at step {step}")
                return stop.code
            return 0 if self.finish(step, state.params, stop) else stop.code

    @contextlib.contextmanager
    def on_disk(self):
        """What cannot be written, as on a full disk, ends the run in a line."""
        try:
            yield
        except OSError as error:
            place, reason = error.filename or self.workdir.name, error.strerror or error
            last = writer.last_word(self.checkpoints.directory)
            raise Unfinished(f"{place}: {reason}; {last}") from None

    def restore(self, step: int | None):
        """(step, state) of the checkpoint at `step`, or of the start."""
        if step is None:
            return 0, self.trainer.initialize()
        place = self.checkpoints.directory / str(step)
        shapes, places = self.trainer.shapes, self.trainer.places
        if step == 0:
            self.reporter.log("starts from imported parameters")
            names, state = ("params",), self.trainer.initialize()
        else:
            self.reporter.log(f"resumed from step {step}")
            names = reader.ITEMS
            state = shapes._replace(step=jax.device_put(jnp.int32(step), places.step))
        state = state._replace(**reader.restore(place, names, shapes, places))
        found = self.fingerprints(step, state)
        reader.check_restored(place, {key: found[key] for key in found if key.startswith(names)})
        return step, state

    def fingerprints(self, step: int, state) -> dict:
        """Of every array; raises where one cannot be right: Unfinished, FloatingPointError."""
        items = reader.items(state)
        try:
            return fingerprint.read(self.trainer.fingerprint, items, self.trainer.mesh)
        except (FloatingPointError, Unfinished) as error:
            last = writer.last_word(self.checkpoints.directory)
            raise type(error)(f"step {step}: {error}; {last}") from None

    def run_phase(self, phase, step: int, state, stop):
        """Steps until the phase or the run ends, or a signal; verdicts and reports are fetched one dispatch late."""
        train, last = self.first_step(phase), self.phases[-1].last
        sums, stopped = None, False
        self.clock.start()
        self.reported = step
        self.watchdog.arm("compile")  # the first step, which may have to wait for an index of rows
        for rows in self.batches(phase, step):
            self.trace(step, state)
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, values, verdict = train(state, rows)
            train, step = self.trainer.train[phase.name], step + 1
            self.catch_up(state.params)
            self.verdict = step - 1, verdict
            sums = values if sums is None else self.combine(sums, values)
            self.reporter.advance(step)
            # Asked once a step: a signal that comes later is answered after the next one, saved like this one.
            stopped = stop.asked()
            actions = due(step, self.config, phase.last, last, stopped)
            if actions.report:
                self.unreported, sums = (phase, step, sums), None
            if actions.save or actions.evaluate:
                self.catch_up(state.params)
            # In a row of steps that were not finite, parameters may be what is wrong: an older checkpoint is better.
            if saves := actions.save and (stopped or step == phase.last or not self.row):
                self.save(step, state)
            elif actions.compare and self.trainer.mesh.size > 1:
                self.fingerprints(step, state)
            if actions.evaluate:
                stopped = not self.evaluate(phase, step, state.params, stop)
                if stopped and not saves:
                    self.save(step, state)
            if stopped:
                break
            self.watchdog.arm("step")  # the next one, from the wait for its batch on
        if self.traces.running:
            self.trace(step, state)
        return step, state, stopped

    def catch_up(self, params) -> None:
        """Fetches the verdict on the step that was dispatched last, and writes its line where one is due. So at most
        two steps are in flight: a signal is answered soon, and batches do not pile up."""
        verdict, unreported = self.verdict, self.unreported
        self.verdict = self.unreported = None
        if verdict:
            self.heed(*verdict, params)
        if unreported:
            self.report(*unreported)

    def first_step(self, phase):
        """That of a phase, which is waited for: devices may say late that they have no room, which is BadInput."""

        def call(state, rows):
            with out_of_memory.told(f"phase {phase.name}, a step"):
                return jax.block_until_ready(self.trainer.train[phase.name](state, rows))

        return call

    def batches(self, phase, step: int) -> Iterator[dict]:
        """Global batches of a phase from `step` on, made from this host's rows."""
        mesh = self.trainer.mesh
        positions = meshes.host_rows(mesh, phase.batch)
        data = iter(self.data.train(phase, step, phase.last, positions))
        while True:
            with self.clock.input():
                arrays = next(data, None)
                if arrays is None:
                    return
                rows = meshes.to_devices(mesh, arrays, positions, phase.batch)
            yield rows

    def trace(self, step: int, state) -> None:
        """Begins or ends a trace before a step where the config says so, with no step in flight."""
        if self.traces.changes(step):
            jax.block_until_ready(state)
            # A trace is written as a checkpoint is, and may take as long.
            with self.clock.outside(), self.watchdog.watch("save"):
                self.traces.change(step)

    def heed(self, step: int, verdict: step_guard.Verdict, params) -> None:
        """Tells what was wrong with the step of this index, and stops the run after too many in a row."""
        verdict = jax.device_get(verdict)
        if text := step_guard.describe(step, verdict):
            self.reporter.log(text)
        self.row = int(verdict.row)
        most = self.config.guard.stop_after
        if self.row < min(most, self.phases[-1].last):
            return
        first = step - self.row + 1
        broken = "".join(f"; {name} is not finite itself" for name in self.not_finite(params))
        place = self.workdir.name
        command = f"bert-jax inspect --config {place}/config.json --step {first}"
        enough = "config.guard.stop_after" if self.row >= most else "all steps of the run"
        raise FloatingPointError(
            f"steps {first} to {step}: {step_guard.reason(verdict)}, {self.row} in a row ({enough}){broken};"
            f" the first batch of them: {command}"
        )

    def not_finite(self, params) -> list[str]:
        """The names of the parameters with numbers that are not finite."""
        find = jax.jit(step_guard.not_finite, out_shardings=meshes.replicated(self.trainer.mesh))
        flags = jax.tree.leaves_with_path(jax.device_get(find(params)))
        return [meshes.path_name(path) for path, flag in flags if flag]

    def report(self, phase, step: int, sums) -> None:
        """One line of training metrics: means over the steps since the line before that were applied."""
        self.check_data()
        writer.check(self.checkpoints)
        sums = jax.device_get(sums)
        times = self.clock.split(step - self.reported)
        self.reported = step
        seconds, values = times["seconds"], metrics.means(sums)
        steps = float(sums["loss"][1])
        flops = run_info.step_flops(self.config, self.data.vocabulary.size, phase) * steps
        devices = self.trainer.mesh.devices.flatten()
        values |= {
            "learning_rate": float(self.trainer.rate(step - 1)),
            "tokens_per_second": float(sums["real_token_share"][0]) / seconds,
            "rows_per_second": steps * phase.batch / seconds,
            "model_flops_utilization": chips.utilization(flops / seconds, devices),
            **times,
            "peak_bytes": metrics.peak_bytes(self.trainer.mesh.local_devices),
        }
        self.reporter.report(step, "train", values)

    def evaluate(self, phase, step: int, params, stop) -> bool:
        """One line of held-out metrics; False without one where a signal came: the next start comes to it."""
        started = time.monotonic()
        with self.clock.outside(), self.watchdog.watch("evaluate"):
            if phase.name not in self.heldout:
                heldout = evaluate.Heldout(self.data, self.config, phase, self.trainer.mesh)
                self.heldout[phase.name] = heldout
            rows = self.heldout[phase.name]
            values = evaluate.over(self.trainer.evaluate[phase.name], params, rows, stop.asked)
            if values is None:
                return False
            self.check_data()
            seconds = time.monotonic() - started
            self.reporter.report(step, "heldout", values | {"seconds": seconds})
        return True

    def evaluate_missed(self, step: int, params, stop) -> bool:
        """What the start before has not come to, since it ended after it had saved this step. And of what was
        imported, on this text: the yardstick for all that follows. False where a signal came."""
        last = self.phases[-1].last
        is_due = step == 0 or due(step, self.config, last, last, False).evaluate
        if is_due and step < last and not self.is_evaluated(step):
            phase = next(phase for phase in self.phases if step <= phase.last)
            return self.evaluate(phase, step, params, stop)
        return True

    def is_evaluated(self, step: int) -> bool:
        return self.processes.from_main(self.reporter.has(step, "heldout"))

    def save(self, step: int, state) -> None:
        with self.clock.outside():
            self.check_data()
            with self.watchdog.watch("save"):
                leaves = self.fingerprints(step, state)
                self.workdir.upload()  # so that no checkpoint is there without its lines
                writer.save(self.checkpoints, step, reader.items(state), leaves, self.id)

    def check_data(self) -> None:
        """Stops the run where what it reads has changed: nothing that came of it is told or saved."""
        try:
            self.data.check_unchanged()
        except BadInput as error:
            if self.processes.is_alone:
                writer.finish(self.checkpoints)  # what is being saved is older than the change
            raise BadInput(f"{error}; {writer.last_word(self.checkpoints.directory)}") from None

    def finish(self, step: int, params, stop) -> bool:
        """The last evaluation, and the summary; False where a signal came before them."""
        if not (self.is_evaluated(step) or self.evaluate(self.phases[-1], step, params, stop)):
            return False
        self.reporter.summarize()
        return True
