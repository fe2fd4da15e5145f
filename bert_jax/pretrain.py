"""The loop and its wiring: build, restore, step, report, evaluate, save.

What is computed lives in step.py and the objective, what is told in report.py; this file puts them in order.
"""

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
from ml_collections import ConfigDict

from bert_jax import (
    checkpoint,
    cluster,
    evaluate,
    facts,
    metrics,
    preflight,
    report,
    resume,
    runtime,
    sharding,
    trained,
    workdir,
)
from bert_jax import config as configs
from bert_jax.build import Trainer, build, make_mesh
from bert_jax.cluster import Cluster
from bert_jax.errors import BadInput
from bert_jax.feed import SavedFeed, StoreFeed, open_feed

STATES = {0: "done", runtime.PREEMPTED: "preempted", runtime.INTERRUPTED: "interrupted"}

Data = StoreFeed | SavedFeed


def pretrain(config: ConfigDict, directory: Path) -> int:
    """Trains to the last step of the config, from the newest checkpoint in `directory` if there is one.

    Returns the exit code: 0 done, 75 preempted after saving, 130 interrupted after saving.
    """
    with cluster.joined(config.distributed) as processes:
        config = runtime.start(config)
        # Where processes met is not part of the run.
        config.distributed = configs.base().distributed
        # Saved with its whole path, so that the run can be used from anywhere.
        config.store = str(Path(config.store).absolute())
        config.batches = config.batches and str(Path(config.batches).absolute())
        return pretrain_together(config, directory, processes)


def pretrain_together(config: ConfigDict, directory: Path, processes: Cluster) -> int:
    """The same in every process of the run; the exit code."""
    processes.agree(config)
    newest = newest_checkpoint(directory, processes)
    mesh, total = check(config, directory, newest), configs.total_steps(config)
    summarized = processes.from_main((directory / "summary.json").is_file())
    if newest == total and summarized:
        print(f"{directory}: done already, {total} steps")
        return 0
    data = open_data(config, directory, newest)
    processes.compare({"config.store: fingerprint": data.fingerprint})
    with runtime.stop_signals(processes) as stop, ThreadPoolExecutor(1) as beside:
        # The hashes of a large store take as long as the compiler does.
        sound = beside.submit(check_hashes, config, data)
        trainer = build(config, mesh, data.vocabulary)
        sound.result()
        with contextlib.ExitStack() as held:
            reporter = report.Silent()
            if processes.is_main:
                held.enter_context(workdir.locked(directory))
                prepare_workdir(config, directory, data, trainer, newest)
                reporter = report.Reporter(directory, newest or 0, total, config.bands)
            held.enter_context(reporter)
            processes.on_failure = reporter.failed
            workdir.check_shared(directory, processes)
            try:
                loop = Loop(config, directory, data, trainer, reporter, processes)
                code = loop.run(newest, stop)
            except BaseException as error:
                code = runtime.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
                reporter.failed(f"{type(error).__name__}: {error}", code)
                raise
            reporter.status(STATES[code])
    return code


def newest_checkpoint(directory: Path, processes: Cluster) -> int | None:
    """The newest step as process 0 sees it, once all see it: some file systems show a new file late to other hosts."""
    place, deadline = directory / "checkpoints", time.monotonic() + workdir.SEEN
    newest = processes.from_main(checkpoint.newest(place))
    seen = newest if processes.is_main else checkpoint.newest(place)
    while seen != newest and time.monotonic() < deadline:
        time.sleep(0.1)
        seen = checkpoint.newest(place)
    found = processes.gather([seen, str(directory)])
    for number, (step, there) in enumerate(found):
        if step != newest:
            raise BadInput(
                f"--workdir {there}: its newest checkpoint is {step} in process {number}, {newest} in process 0, whose"
                f" --workdir is {found[0][1]}"
            )
    return newest


def prepare_workdir(config, directory: Path, data: Data, trainer: Trainer, newest) -> None:
    """All that is refused or written once the workdir is ours, up to the first step."""
    if checkpoint.newest(directory / "checkpoints") != newest:
        raise BadInput(f"--workdir {directory}: another process has trained in it just now")
    for path in checkpoint.set_aside(directory / "checkpoints"):
        print(f"{path}: renamed, not a whole checkpoint")
    lines = preflight.check_place(config, directory, trainer.shapes)
    lines += preflight.check_micro_batches(config, trainer.mesh)
    if not newest:
        lines += data.preflight()
    print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
    write_run(config, directory, data, trainer)


def check(config: ConfigDict, directory: Path, step: int | None) -> jax.sharding.Mesh:
    """Refuses what cannot work before anything is computed or written; returns the mesh."""
    mesh = make_mesh(config, configs.phases(config))
    workdir.check(directory)
    if step is not None:
        old = configs.read(directory / "config.json")
        refused = resume.refusals(old, config, step)
        if refused:
            raise BadInput(f"{directory}: a run of another config: {'; '.join(refused)}")
        before, now = configs.total_steps(old), configs.total_steps(config)
        if step and before != now:
            print(f"{now} steps instead of {before}: from here on the rate is that of {now} steps")
    return mesh


def open_data(config: ConfigDict, directory: Path, step: int | None) -> Data:
    """What the run reads from its newest checkpoint on, if it is that of the run: a missing store is prepared first."""
    data = open_feed(config, step or 0)
    if step is not None:
        trained.check_store(directory, workdir.read_json(directory / "run.json"), step, data)
    return data


def check_hashes(config: ConfigDict, data: Data) -> None:
    """Raises BadInput where a file that is read is not what was written."""
    if config.store_hashes:
        data.check_hashes()


def write_run(config: ConfigDict, directory: Path, data: Data, trainer: Trainer) -> None:
    """What a workdir holds before the first step, and the head of the log."""
    configs.save(config, directory / "config.json")
    shutil.copytree(data.path / "tokenizer", directory / "tokenizer", dirs_exist_ok=True)
    values = facts.facts(config, data, trainer)
    if (directory / "run.json").is_file():
        before = workdir.read_json(directory / "run.json")
        values |= {key: before[key] for key in ("imported", "fresh") if key in before}
    workdir.write_json(directory / "run.json", values)
    (directory / "summary.json").unlink(missing_ok=True)
    print(facts.describe(config, values), flush=True)


def is_due(step: int, every: int) -> bool:
    """Whether something that happens every so many steps (0 is never) happens at this one."""
    return every > 0 and step % every == 0


class Loop:
    """One pass through the steps that are left."""

    def __init__(self, config, directory: Path, data: Data, trainer: Trainer, reporter, processes):
        self.config, self.directory, self.data = config, directory, data
        self.trainer, self.reporter, self.processes = trainer, reporter, processes
        self.phases = configs.phases(config)
        self.heldout = {}  # of each phase that was evaluated; to trace its batches takes a while
        self.combine = jax.jit(metrics.add, donate_argnums=0)
        self.started = time.monotonic()  # of the interval that the next report is about

    def run(self, newest: int | None, stop) -> int:
        """Trains from the checkpoint `newest` on; the exit code."""
        keep = self.config.checkpoint.keep, self.config.checkpoint.keep_every
        with (
            jax.set_mesh(self.trainer.mesh),
            checkpoint.manager(self.directory / "checkpoints", *keep) as self.checkpoints,
            self.processes.ending_together(),  # before the manager waits for what others have to save
        ):
            step, state = self.restore(newest)
            self.reporter.start(step)
            stopped = stop.asked(step)
            # Of what was imported, on this text: the yardstick for all that follows.
            if newest == 0 and not stopped and not self.is_evaluated(0):
                self.evaluate(self.phases[0], 0, state.params)
            for phase in self.phases:
                if step < phase.last and not stopped:
                    step, state, stopped = self.run_phase(phase, step, state, stop)
            self.checkpoints.wait_until_finished()
            if step < self.phases[-1].last:
                return stop.code
            self.finish(step, state.params)
            return 0

    def restore(self, step: int | None):
        """(step, state) of the checkpoint at `step`, or of the start."""
        if step is None:
            return 0, self.trainer.initialize()
        shapes, places = self.trainer.shapes, self.trainer.places
        if step == 0:
            self.reporter.log("starts from imported parameters")
            state = self.trainer.initialize()
            names = ("params",)
            items = checkpoint.restore_items(self.checkpoints, 0, names, shapes, places)
            return 0, state._replace(**items)
        self.reporter.log(f"resumed from step {step}")
        return step, checkpoint.restore(self.checkpoints, step, shapes, places)

    def run_phase(self, phase, step: int, state, stop):
        """Steps until the phase or the run ends, or a signal; reports are fetched one dispatch late."""
        train, stopped = self.trainer.train[phase.name], False
        sums, due, self.started = None, None, time.monotonic()
        for rows in self.batches(phase, step):
            state, values = train(state, rows)
            step += 1
            if due:
                self.report(*due)
                due = None
            if sums is not None:
                # At most two steps in flight: a signal is answered soon, and batches do not pile up.
                jax.block_until_ready(sums)
            sums = values if sums is None else self.combine(sums, values)
            self.reporter.advance(step)
            # Asked once a step: a signal that comes later is answered after the next one, saved like this one.
            stopped = stop.asked(step)
            last = stopped or step == phase.last
            if last or is_due(step, self.config.log.every):
                sums, due = None, (phase, step, sums)
            saves = last or is_due(step, self.config.checkpoint.every)
            evaluates = is_due(step, self.config.evaluate.every) and step < self.phases[-1].last
            if due and (saves or evaluates):
                # Reported first: a loss that is not finite is neither saved nor evaluated.
                self.report(*due)
                due = None
            if saves:
                self.save(step, state)
            if evaluates and not stopped:
                self.evaluate(phase, step, state.params)
            if stopped:
                break
        return step, state, stopped

    def batches(self, phase, step: int) -> Iterator[dict]:
        """Global batches of a phase from `step` on, made from this host's rows."""
        mesh = self.trainer.mesh
        positions = sharding.host_rows(mesh, phase.batch)
        for arrays in self.data.train(phase, step, phase.last, positions):
            yield sharding.to_devices(mesh, arrays, positions, phase.batch)

    def report(self, phase, step: int, sums) -> None:
        """One line of training metrics: means since the line before. Stops the run where the loss is not finite."""
        sums = jax.device_get(sums)
        now = time.monotonic()
        seconds, self.started = now - self.started, now
        values = metrics.means(sums)
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(values[name]):
                raise FloatingPointError(f"the {name} became {values[name]} by step {step}")
        steps = sums["loss"][1]
        flops = facts.step_flops(self.config, self.data.vocabulary.size, phase) * steps
        devices = self.trainer.mesh.devices.flatten()
        values |= {
            "learning_rate": float(self.trainer.rate(step - 1)),
            "tokens_per_second": float(sums["fill"][0]) / seconds,
            "rows_per_second": float(steps) * phase.batch / seconds,
            "model_flops_utilization": metrics.utilization(flops / seconds, devices),
            "seconds": seconds,
        }
        self.reporter.report(step, "train", values)

    def evaluate(self, phase, step: int, params) -> None:
        started = time.monotonic()
        if phase.name not in self.heldout:
            heldout = evaluate.Heldout(self.data, self.config, phase, self.trainer.mesh)
            self.heldout[phase.name] = heldout
        rows = self.heldout[phase.name]
        values = evaluate.over(self.trainer.evaluate[phase.name], params, rows)
        seconds = time.monotonic() - started
        self.reporter.report(step, "heldout", values | {"seconds": seconds})
        self.started += seconds

    def is_evaluated(self, step: int) -> bool:
        return self.processes.from_main(self.reporter.has(step, "heldout"))

    def save(self, step: int, state) -> None:
        started = time.monotonic()
        checkpoint.save(self.checkpoints, step, state)
        self.started += time.monotonic() - started

    def finish(self, step: int, params) -> None:
        """The last evaluation, and the summary."""
        if not self.is_evaluated(step):
            self.evaluate(self.phases[-1], step, params)
        self.reporter.summarize()
