"""The world in which faults happen: a store, saved batches, undisturbed runs, and what a disturbed one has to end with.

A run alone has two devices; two processes together have one each, so that either has a reference with its own bits.
"""

import contextlib
import io
import itertools
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from kits import processes, stuck
from kits.small import SMALL, overrides, write_corpus

from bert_jax.checkpoints import reader
from bert_jax.cli import main
from bert_jax.runs import timing

STEPS, EVERY = 30, 2  # steps of a run, and after how many it is saved
EVALUATED = (10, 20)  # the steps, before the last one, that are evaluated
HALF = 20  # where a run is that is half done
ALONE, TOGETHER = "alone", "together"
DEVICES = {ALONE: [2], TOGETHER: [1, 1]}  # of each process
LIMIT = 300.0  # seconds for whatever ends by itself, on a machine that others may use too
# Seconds, of the config.
DEADLINES = {"deadlines.compile": 60, "deadlines.step": 8, "deadlines.save": 10}
DEADLINES |= {"deadlines.evaluate": 15, "distributed.heartbeat": 10}
LATEST = 150.0  # seconds until all have ended, from their start, where one is stuck or gone


class Outcome(NamedTuple):
    """What became of one try."""

    ok: bool
    kind: str  # a few words, counted in the table
    story: str  # what was done and what happened


class Ended(NamedTuple):
    code: int
    said: str  # standard output, then standard error


class NotRun(Exception):
    """This machine cannot do what a fault needs."""


NOT_RUN = "not run"  # the kind of such an outcome


class World:
    """Made once in a directory and kept there."""

    def __init__(self, directory: Path):
        self.directory = directory.absolute()
        self.warm = Path(jax.config.jax_compilation_cache_dir)
        self.settings = SMALL | {
            "corpus.source": self.directory / "corpus.txt",
            "store": self.directory / "store",
            "batches": self.directory / "batches",
            "phases.main.steps": STEPS,
            "log.every": 1,
            "evaluate.every": EVALUATED[0],  # after a save, so that a kill may fall between
            "evaluate.rows": 16,
            "checkpoint.every": EVERY,
            "checkpoint.keep": 3,
        }

    def prepare(self) -> None:
        """The store, the batches and both undisturbed runs."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not (self.directory / "corpus.txt").exists():
            write_corpus(self.directory / "corpus.txt", documents=60)
        if not (self.directory / "batches").exists():
            place = ["--steps", f"0:{STEPS}", "--save", self.directory / "batches"]
            ended = call("inspect", *self.keys(batches=""), *place)
            assert ended.code == 0, ended.said
        for kind in (ALONE, TOGETHER):
            if not (self.reference(kind) / "summary.json").exists():
                shutil.rmtree(self.reference(kind), ignore_errors=True)
                # Every checkpoint is kept: whatever a disturbed run goes on from is compared with it.
                keep = {"checkpoint.keep": STEPS}
                ended = self.run(self.reference(kind), kind, self.warm, **keep)
                assert all(process.code == 0 for process in ended), ended

    def reference(self, kind: str) -> Path:
        return self.directory / kind

    def keys(self, **changes) -> list[str]:
        settings = overrides(self.settings | changes)
        return ["--config", "demo", *(f"--config.{override}" for override in settings)]

    def pretrain(self, run: Path, **changes) -> list[str]:
        """The command line of a run."""
        return ["pretrain", *self.keys(**changes), "--workdir", str(run)]

    def half_done(self, run: Path, kind: str = ALONE) -> Path:
        """The undisturbed run as a kill would have left it, one step after the one that was saved at HALF."""
        shutil.copytree(self.reference(kind), run)
        (run / "summary.json").unlink()
        told = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        kept = [line for line in told if json.loads(line)["step"] <= HALF + 1]
        (run / "metrics.jsonl").write_text("".join(kept))
        status = json.loads((run / "status.json").read_text())
        status |= {"state": "running", "step": HALF + 1, "last_checkpoint": HALF}
        (run / "status.json").write_text(json.dumps(status))
        for path in (run / "checkpoints").iterdir():
            if not HALF - 3 * EVERY < int(path.name) <= HALF:
                shutil.rmtree(path)
        return run

    # --- Processes --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def started(self, run: Path, kind: str, *, cache: Path | None = None, fault="", **changes):
        """[Popen] of one or two processes that train in `run`; what they say lies beside it.

        fault: what happens to one of them by itself, as in kits/stuck.py. cache: of compiled programs; by default a
        copy of the warm one, since a killed process may leave half a file.
        """
        said = run.with_name(f"{run.name}.said")
        if cache is None:
            cache = run.with_name("cache")
            shutil.rmtree(cache, ignore_errors=True)
            shutil.copytree(self.warm, cache)
        variables = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            stuck.FAULT: fault,
        }
        devices = DEVICES[kind]
        command = self.pretrain(run, **changes)
        with processes.started(
            command, said, len(devices), devices, program=stuck.__file__, **variables
        ) as running:
            yield running

    def wait(self, running, run: Path, seconds: float = LIMIT) -> list[Ended]:
        """What became of the processes; raises TimeoutExpired with what they said."""
        found = processes.wait(running, run.with_name(f"{run.name}.said"), seconds)
        return [Ended(process.code, process.output + process.errors) for process in found]

    def run(self, run: Path, kind: str, cache: Path | None = None, **changes) -> list[Ended]:
        """Processes that train in `run` and are left alone."""
        with self.started(run, kind, cache=cache, **changes) as running:
            return self.wait(running, run)

    def finish(self, run: Path, kind: str = ALONE, cache: Path | None = None, **changes) -> str:
        """Lets a disturbed run go on to its end; what is wrong then, or an empty text. One process is this one, but for
        a cache of its own."""
        newest, is_done = reader.newest(run / "checkpoints"), (run / "summary.json").exists()
        if kind == ALONE and cache is None:
            ended = [call(*self.pretrain(run, **changes))]
        else:
            ended = self.run(run, kind, cache, **changes)
        failed = [process for process in ended if process.code != 0]
        if failed:
            return "\n".join(f"the restart ended with {end.code}: {end.said}" for end in failed)
        resumed = f"resumed from step {newest}\n"
        if newest and not is_done and resumed not in ended[0].said:
            return f"the restart has not {resumed.rstrip()}: {ended[0].said}"
        return self.difference(run, kind)

    # --- Comparing --------------------------------------------------------------------------------

    def difference(self, run: Path, kind: str) -> str:
        """In what a run that has ended differs from the undisturbed one; an empty text where in nothing."""
        if not (run / "summary.json").exists():
            return "no summary.json"
        state = json.loads((run / "status.json").read_text())["state"]
        if state != "done":
            return f"its status is {state}"
        for a, b in itertools.zip_longest(lines(run), lines(self.reference(kind))):
            if a != b:
                return f"metrics.jsonl: {a} instead of {b}"
        state, expected = read_state(run, STEPS), read_state(self.reference(kind), STEPS)
        if state.keys() != expected.keys():
            return f"other arrays: {sorted(state.keys() ^ expected.keys())}"
        for name, array in expected.items():
            if state[name].dtype != array.dtype or state[name].tobytes() != array.tobytes():
                return f"{name} is not bitwise that of the undisturbed run"
        return ""


def call(*arguments) -> Ended:
    """The command `bert-jax` in this process."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as said,
        contextlib.redirect_stderr(said),
    ):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = error.code
        except Exception as error:  # the program would end with a traceback
            print(f"Traceback: {type(error).__name__}: {error}")
            code = 1
    return Ended(code, said.getvalue())


def lines(run: Path) -> list[dict]:
    """metrics.jsonl without what depends on the clock."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line.keys() - timing.TIMES} for line in found]


def read_state(run: Path, step: int) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, read by Orbax without a word of ours about what should be in it."""
    state = {}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as saved:
        for item in ("params", "opt_state"):
            path = run / "checkpoints" / str(step) / item
            tree = saved.metadata(path).item_metadata.tree
            kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
            state[item] = saved.restore(path, args=ocp.args.PyTreeRestore(restore_args=kinds))
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
