"""The loop and its wiring: build, restore, step, report, evaluate, save.

What is computed lives in step.py and the objective, what is told in report.py; this file puts them in order.
"""

import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import (
    checkpoint,
    evaluate,
    facts,
    metrics,
    report,
    runtime,
    sharding,
    tokenizer,
    workdir,
)
from bert_jax import config as configs
from bert_jax.build import Trainer, build
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.objectives.base import Vocabulary

STATES = {0: "done", runtime.PREEMPTED: "preempted", runtime.INTERRUPTED: "interrupted"}


class Data(NamedTuple):
    """What the loop reads."""

    store: Store
    word_starts: np.ndarray
    vocabulary: Vocabulary


def pretrain(config: ConfigDict, directory: Path) -> int:
    """Trains to the last step of the config, from the newest checkpoint in `directory` if there is one.

    Returns the exit code: 0 done, 75 preempted after saving, 130 interrupted after saving.
    """
    config = runtime.start(config)
    mesh = check(config, directory)
    total, newest = configs.total_steps(config), checkpoint.newest(directory / "checkpoints")
    if newest == total and (directory / "summary.json").is_file():
        print(f"{directory}: done already, {total} steps")
        return 0
    data = open_data(config, directory)
    with runtime.stop_signals() as stop:
        trainer = build(config, mesh, data.vocabulary)
        values = facts.facts(config, data.store, data.vocabulary, trainer)
        workdir.write_json(directory / "run.json", values)
        print(facts.describe(config, values), flush=True)
        with report.Reporter(directory, newest or 0, total) as reporter:
            try:
                code = Loop(config, directory, data, trainer, reporter).run(stop)
            except BaseException as error:
                reporter.status("failed", error=f"{type(error).__name__}: {error}"[:500])
                raise
            reporter.status(STATES[code])
    return code


def check(config: ConfigDict, directory: Path) -> jax.sharding.Mesh:
    """Refuses what cannot work before anything is computed or written; returns the mesh."""
    mesh = sharding.make_mesh(config.mesh)
    for phase in configs.phases(config):
        key = f"phases.{phase.name}.batch"
        sharding.check_rows(mesh, phase.batch, config.train.micro_batches, key)
    if directory.exists() and not directory.is_dir():
        raise BadInput(f"--workdir {directory}: not a directory")
    step = checkpoint.newest(directory / "checkpoints")
    if step is not None:
        old = configs.read(directory / "config.json")
        refused = configs.refusals(old, config, step)
        if refused:
            raise BadInput(f"{directory}: a run of another config: {'; '.join(refused)}")
        before, now = configs.total_steps(old), configs.total_steps(config)
        if before != now:
            print(f"{now} steps instead of {before}: from here on the rate is that of {now} steps")
    return mesh


def open_data(config: ConfigDict, directory: Path) -> Data:
    """The store, prepared first if it is missing; then the workdir with its config and tokenizer."""
    from bert_jax.data import prepare

    if not (Path(config.store) / "manifest.json").is_file():
        if jax.process_count() > 1:
            raise BadInput(f"config.store={config.store}: missing; run bert-jax prepare first")
        prepare.prepare(config)
    store = prepare.open_or_refuse(config)
    if checkpoint.newest(directory / "checkpoints") is not None:
        known = workdir.read_json(directory / "run.json")["store_fingerprint"]
        if known != store.fingerprint:
            raise BadInput(f"config.store={config.store}: not the one {directory} is trained on")
    directory.mkdir(parents=True, exist_ok=True)
    configs.save(config, directory / "config.json")
    shutil.copytree(store.path / "tokenizer", directory / "tokenizer", dirs_exist_ok=True)
    vocabulary = Vocabulary(store.manifest["vocabulary"], **store.manifest["special"])
    return Data(store, tokenizer.load(store.path / "tokenizer").word_starts, vocabulary)


class Loop:
    """One pass through the steps that are left."""

    def __init__(self, config, directory: Path, data: Data, trainer: Trainer, reporter):
        self.config, self.directory, self.data = config, directory, data
        self.trainer, self.reporter = trainer, reporter
        self.phases = configs.phases(config)
        self.combine = jax.jit(metrics.add, donate_argnums=0)

    def run(self, stop) -> int:
        keep = self.config.checkpoint.keep, self.config.checkpoint.keep_every
        with (
            jax.set_mesh(self.trainer.mesh),
            checkpoint.manager(self.directory / "checkpoints", *keep) as self.checkpoints,
        ):
            step, state = self.restore()
            for phase in self.phases:
                if step < phase.last and not stop.code:
                    step, state = self.run_phase(phase, step, state, stop)
            self.checkpoints.wait_until_finished()
        if step == self.phases[-1].last:
            self.summarize()
            return 0
        return stop.code

    def restore(self):
        """(step, state) of the newest checkpoint, or of the start."""
        step = self.checkpoints.latest_step()
        if step is None:
            return 0, self.trainer.initialize()
        self.reporter.log(f"resumed from step {step}")
        shapes, places = self.trainer.shapes, self.trainer.places
        return step, checkpoint.restore(self.checkpoints, step, shapes, places)

    def run_phase(self, phase, step: int, state, stop):
        """Steps until the phase or the run ends, or a signal; reports are fetched one dispatch late."""
        train = self.trainer.train[phase.name]
        every = self.config
        sums, due, self.started = None, None, time.monotonic()
        for rows in self.batches(phase, step):
            state, values = train(state, rows)
            step += 1
            if due:
                self.report(*due)
            if sums is not None:
                # At most two steps in flight: a signal is answered soon, and batches do not pile up.
                jax.block_until_ready(sums)
            sums, due = values if sums is None else self.combine(sums, values), None
            self.reporter.advance(step)
            last = step == phase.last or stop.code
            if last or step % every.log.every == 0:
                sums, due = None, (phase, step, sums)
            evaluates = step % every.evaluate.every == 0 if every.evaluate.every else False
            saves = step % every.checkpoint.every == 0
            if due and (last or evaluates or saves):
                # Reported first: what is not finite is neither evaluated nor saved.
                self.report(*due)
                due = None
            if evaluates or step == self.phases[-1].last:
                self.evaluate(phase, step, state.params)
            if saves or last:
                self.save(step, state)
            if stop.code:
                break
        return step, state

    def batches(self, phase, step: int) -> Iterator[dict]:
        """Global batches of a phase from `step` on, made from this host's rows."""
        from bert_jax.data import stream

        mesh, data = self.trainer.mesh, self.data
        positions = sharding.host_rows(mesh, phase.batch)
        spec = stream.spec(self.config, phase.name)
        local = stream.train_batches(
            data.store,
            data.word_starts,
            spec,
            step - phase.first,
            phase.last - phase.first,
            positions,
        )
        for arrays in local:
            yield sharding.to_devices(mesh, arrays, positions, phase.batch)

    def report(self, phase, step: int, sums) -> None:
        """One line of training metrics: means since the line before. Stops the run where the loss is not finite."""
        sums = jax.device_get(sums)
        now = time.monotonic()
        seconds, self.started = now - self.started, now
        values = metrics.means(sums)
        if not math.isfinite(values["loss"]):
            raise FloatingPointError(f"the loss became {values['loss']} by step {step}")
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
        started, data = time.monotonic(), self.data
        size = evaluate.batch_size(self.config, phase, self.trainer.mesh)
        rows = evaluate.heldout(
            data.store, data.word_starts, self.config, phase, self.trainer.mesh, size
        )
        values = evaluate.over(self.trainer.evaluate[phase.name], params, rows)
        seconds = time.monotonic() - started
        self.reporter.report(step, "heldout", values | {"seconds": seconds})
        self.started += seconds

    def save(self, step: int, state) -> None:
        started = time.monotonic()
        checkpoint.save(self.checkpoints, step, state)
        self.reporter.saved(step)
        self.started += time.monotonic() - started

    def summarize(self) -> None:
        """summary.json: the last numbers of each split and the seconds of all starts together."""
        known = workdir.read_json(self.directory / "run.json")
        lines = report.read_lines(self.directory / "metrics.jsonl")
        last = {line["split"]: line for line in lines}
        summary = {
            "parameters": known["parameters"],
            "unigram_entropy": known["unigram_entropy"],
            "steps": self.phases[-1].last,
            "seconds": sum(line["seconds"] for line in lines if line["split"] == "train"),
            **last,
        }
        workdir.write_json(self.directory / "summary.json", summary)
