"""Sets up a run: checks the config, compares it between processes, opens data and workdir, calls the loop."""

import contextlib
import shutil
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.build import Trainer, build, make_mesh, start_from
from bert_jax.checkpoints import reader, writer
from bert_jax.convert import init_from
from bert_jax.data import download
from bert_jax.errors import LOST, BadInput, Unavailable
from bert_jax.loop import Data, Loop
from bert_jax.pages import report as pages
from bert_jax.parallel import cluster
from bert_jax.parallel.cluster import Cluster
from bert_jax.registry import user_function
from bert_jax.runs import (
    continuation,
    jax_setup,
    metrics,
    preflight,
    report,
    run_info,
    signals,
    weights_and_biases,
    workdir,
)
from bert_jax.runs.watchdog import Watchdog
from bert_jax.runs.workdir import Workdir
from bert_jax.storage import atomic, remote
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_feed
from bert_jax.tokenizers import tokenizer

STATES = {0: "done", signals.PREEMPTED: "preempted", signals.INTERRUPTED: "interrupted"}


class Start(NamedTuple):
    """The checkpoint that a run starts from, and the run that saved it; without any, the run starts anew."""

    step: int | None = None
    checkpoint: Path | None = None
    name: str = ""  # of the run that saved it: this one, or that of config.continue_from
    config: ConfigDict | None = None
    info: dict = {}  # its run.json


def pretrain(
    config: ConfigDict, name: Path | str, resolve: Callable | None = None, overrides=()
) -> int:
    """Trains to the last step of the config, from the newest checkpoint in the workdir if it has one.

    name: the workdir, a directory or an address.
    resolve: config, overrides -> the config to train; called in every process once they are connected.
    overrides: `a.b=value`, those that the config has; a run keeps its warm-up and its rate unless they are among them.

    Returns the exit code: 0 done, 75 preempted after saving, 130 interrupted after saving, 76 if a device or another
    process was lost.
    """
    with cluster.joined(config.distributed) as processes, Watchdog(config.timeouts) as watchdog:
        watchdog.arm("compile")
        with workdir.opened(name) as run:
            config = jax_setup.start(config)  # JAX waits here for the devices of all processes
            if resolve:
                check_start(config, run)
                config = resolve(config, overrides)
            # The coordinator's address is not a property of the run.
            config.distributed = configs.base().distributed
            # Absolute paths, so that the saved config works from any directory.
            for key in ("store", "batches", *configs.STARTS):
                config[key] = download.absolute(config[key])
            return pretrain_together(config, run, processes, watchdog, overrides)


def pretrain_together(
    config: ConfigDict, run: Workdir, processes: Cluster, watchdog: Watchdog, overrides
) -> int:
    """Trains in every process of the run; returns the exit code."""
    watchdog.arm("save")  # verifying a checkpoint may take as long as saving it
    processes.agree(config)
    newest = newest_checkpoint(run, processes)
    start = find_start(config, run, newest.step, processes)
    watchdog.arm("compile")
    step = start.step
    mesh = check(config, run, start, overrides)
    if step is not None and processes.from_main(is_summarized(config, run, step)):
        if set(continuation.BY_CONTENT) & set(configs.differences(start.config, config)):
            open_data(config, start, processes, watchdog)  # another name may be other content
        print(f"{run.name}: already done, {step} of {configs.total_steps(config)} steps")
        return 0
    data, body = open_data(config, start, processes, watchdog)
    processes.compare({"config.store: fingerprint": data.fingerprint})
    if processes.is_main:
        print(f"compiling phase {', '.join(config.phase_order)}, for up to minutes", flush=True)
    with signals.stop_signals(processes) as stop:
        trainer = build_and_verify(config, mesh, data, init_state=step is None)
        imported = {key: start.info[key] for key in ("imported", "fresh") if key in start.info}
        if body:
            params = trainer.shapes.params
            fitted = init_from.fit(config, body, params)
            imported = init_from.describe(config, body, fitted, params)
            body.arrays.clear()  # `start_from` frees those that are on the devices
            trainer = start_from(trainer, fitted, body.moments)
        stop.started = True  # from here on the workdir is written
        with contextlib.ExitStack() as held:
            reporter = report.SilentReporter()
            if processes.is_main:
                held.enter_context(run.locked())
                prepare_workdir(config, run, data, trainer, newest, imported)
                run.upload()
                reporter = report.Reporter(run, step or 0, config)
            held.enter_context(reporter)

            def on_failure(reason: str, code: int) -> None:
                reporter.fail(reason, code)
                run.upload_and_release()

            processes.on_failure = on_failure
            id = share_id(run, processes)
            loop = Loop(config, run, data, trainer, reporter, processes, watchdog, stop, id)
            return run_loop(loop, start.checkpoint)


def build_and_verify(config: ConfigDict, mesh, data: Data, init_state: bool) -> Trainer:
    """Compiles the programs, see `build`, and verifies the checksums of the data.

    Hashing a large store takes as long as compiling, so both run at the same time. If a program does not compile,
    nobody waits for the hashes.
    """
    if not config.verify_store:
        return build(config, mesh, data.vocabulary, init_state)
    hashes_checked = ThreadPoolExecutor(1).submit(data.check_hashes)
    trainer = build(config, mesh, data.vocabulary, init_state)
    hashes_checked.result()
    return trainer


def share_id(run: Workdir, processes: Cluster) -> str:
    """Returns the id of the run, once all processes see the same workdir."""
    if not run.bucket:
        processes.wait_until_equal(lambda: preflight.read_run_id(run), run.name)
    processes.wait_until_equal(lambda: reader.newest(run.checkpoints), run.name)
    return processes.from_main(preflight.read_run_id(run) if processes.is_main else None)


def run_loop(loop: Loop, checkpoint: Path | None) -> int:
    """Trains from a checkpoint, or from the start; returns the exit code, which status.json has, too."""
    reporter = loop.reporter
    try:
        code = loop.run(checkpoint)
    except BaseException as error:
        code = signals.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        reporter.fail(f"{type(error).__name__}: {error}", code)
        if not cluster.is_loss(error):
            raise
        with contextlib.suppress(OSError):
            traceback.print_exception(error)
        return LOST
    if code:
        saved = writer.name_last(loop.workdir.checkpoints)
        reporter.log(f"{STATES[code]}: {saved}; the same command resumes")
    reporter.end(STATES[code])
    if loop.config.log.report and loop.processes.is_main and not code:
        pages.write_at_end(loop.workdir, reporter.log)
    return code


def is_summarized(config: ConfigDict, run: Workdir, step: int) -> bool:
    """Returns whether the latest start ended the run at `step`, its last one or an earlier one by `evaluate.patience`,
    and wrote its summary."""
    summary = workdir.read_summary(run.directory)
    is_over = metrics.is_over(config, summary.get("best", {}))
    return summary.get("steps") == step and (is_over or step == configs.total_steps(config))


def newest_checkpoint(run: Workdir, processes: Cluster, last: int = sys.maxsize) -> reader.Newest:
    """Returns the newest checkpoint up to the step `last` that verifies, according to process 0, once all processes see
    the same files: some file systems show a new file late to other hosts."""
    processes.wait_until_equal(lambda: reader.newest(run.checkpoints), run.name)
    verified = None
    if processes.is_main:
        verified = reader.newest_verified(run.checkpoints, preflight.read_run_id(run), last=last)
    step, skipped = processes.from_main(verified)
    return reader.Newest(step, {int(number): reason for number, reason in skipped.items()})


def find_start(config: ConfigDict, run: Workdir, step: int | None, processes: Cluster) -> Start:
    """Returns the checkpoint of `step` in the workdir or, if it has none, that of config.continue_from, if any. Raises
    BadInput if that one does not exist or verify."""
    if step is not None:
        return read_start(run, step, str(run.directory))
    text = config.continue_from
    if not text:
        return Start()
    name, number = workdir.split_step(text)
    with workdir.opened(name, "config.json", "run.json") as source:
        step = newest_checkpoint(source, processes, number or sys.maxsize).step
        if not step or number not in (None, step):
            reason = f"no such intact checkpoint; the run has {reader.steps(source.checkpoints)}"
            raise BadInput(f"config.continue_from={text}: {reason}")
        start = read_start(source, step, name)
    start.config.update(init_from="", continue_from=text)  # where that run itself started
    return start


def read_start(run: Workdir, step: int, name: str) -> Start:
    """Returns the checkpoint of a step of a run as a Start."""
    config = configs.read(run.directory / "config.json")
    info = workdir.read_info(run.directory)
    if "mean_of" in info:
        hint = "without an optimizer's state; start from it by config.init_from in another workdir"
        raise BadInput(f"{name}: a mean of checkpoints, {hint}")
    return Start(step, run.checkpoints / str(step), name, config, info)


def prepare_workdir(
    config, run: Workdir, data: Data, trainer: Trainer, newest: reader.Newest, imported: dict
):
    """Checks and writes the workdir after it was locked, before the first step. Raises BadInput or Unavailable."""
    directory, checkpoints = run.directory, run.checkpoints
    seen = {*newest.skipped, newest.step} - {None}
    if max(reader.steps(checkpoints), default=None) != max(seen, default=None):
        raise Unavailable(f"--workdir {run.name}: another process just saved a checkpoint in it")
    atomic.remove_temporary(directory)
    for line in reader.describe(checkpoints, newest.skipped):
        print(line)
    for path in writer.clean(checkpoints, newest.skipped):
        print(f"{path}: damaged checkpoint, renamed")
    if not run.bucket:
        preflight.check_disk(config, directory, trainer.shapes)
    if not newest.step:
        print(*preflight.check_data(config, data), sep="\n", flush=True)
    write_run(config, directory, data, trainer, imported)


def check_start(config: ConfigDict, run: Workdir) -> None:
    """Raises BadInput if no run can start in the workdir with this config, whatever is in its store."""
    run.check(config.store, config.batches, config.compilation_cache)
    tasks.check_scores(config)
    weights_and_biases.check(config)
    if name := config.evaluate.metric:
        with user_function("evaluate.metric", name):
            pass
    if not config.init_from:  # which decides keys of the model
        make_mesh(config, configs.phases(config))


def check(config: ConfigDict, run: Workdir, start: Start, overrides=()) -> jax.sharding.Mesh:
    """Raises BadInput if the run cannot be started or resumed with this config; returns the mesh. Computes and writes
    nothing."""
    check_start(config, run)
    mesh = make_mesh(config, configs.phases(config))
    preflight.check_average(config)
    old = start.config
    if old:
        tasks.take_filled(config, old.task)
        if start.step:
            continuation.take_schedule(config, old, overrides)
        if refused := continuation.refusals(old, config, start.step):
            name = start.name.replace(str(run.directory), run.name)  # a copy if it is in a bucket
            what = f"started with another config: {'; '.join(refused)}"
            raise BadInput(
                f"{name}: {what}; use its values, or a new run in another --workdir: of the same model, it can start"
                f" from the network by config.init_from={name}, or from all parameters by export and import"
            )
        steps = configs.total_steps(config)
        before = configs.total_steps(old)
        if start.step and steps != before:
            print(f"{steps} steps instead of {before}: the learning rate follows the new number")
    return mesh


def open_data(config: ConfigDict, start: Start, processes: Cluster, watchdog: Watchdog):
    """Opens the data from the first step on, and for a new run the body of config.init_from; prepares a missing
    store. Returns (Data, init_from.SourceModel, or None for random weights).

    Raises BadInput if it is not the data that the run was started with, or has another tokenizer than the body.
    """
    is_new = start.step is None
    body = None
    if config.init_from and is_new:
        body = init_from.read(config, processes)
    name = config.batches or config.store
    if remote.is_address(name) or not (config.batches or download.exists(name)):
        watchdog.arm("")  # preparing or downloading a store may take any time
    data = open_feed(config, start.step or 0)
    if not is_new:
        init_from.check_same(config, start.name, start.config, start.info, processes)
        run_info.check_store(start.name, start.info, start.step, data)
    if body:
        path = data.path / "tokenizer"
        init_from.check_tokenizer(config, body, data.key, tokenizer.load(path))
    watchdog.arm("compile")
    return data, None if config.random_weights else body


def write_run(config, directory: Path, data: Data, trainer: Trainer, imported: dict) -> None:
    """Writes config.json, tokenizer/ and run.json, and prints the head of the log.

    imported: values for run.json about the body that the run started from, see `init_from.describe`.
    """
    configs.save(config, directory / "config.json")
    kept = {}
    if (directory / "run.json").is_file():
        before = workdir.read_info(directory)
        kept = {key: before[key] for key in ("run", "starts") if key in before}
    else:  # otherwise it is there, and the same
        shutil.copytree(data.path / "tokenizer", directory / "tokenizer", dirs_exist_ok=True)
    values = {
        "run": workdir.new_run_id(),
        "tokenizer": tokenizer.load(directory / "tokenizer").fingerprint,
        "config": continuation.digest(config),
        **run_info.collect(config, data, trainer),
        **kept,
        **imported,
    }
    workdir.write_info(directory, values)
    print(run_info.describe(config, values))
    for schedule in configs.schedules(config):
        print(f"peak learning rate {schedule.peak:.2g} from step {schedule.first} on", flush=True)
