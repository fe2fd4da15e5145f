"""The setting of the fault tests: a store, saved batches, and undisturbed runs that disturbed ones are compared with.

A single process has eight devices; two processes have one each. Each setup has its own undisturbed run, since their
bits differ. The single process reads the store, and builds the indexes of later epochs as it trains; the two read saved
batches.
"""

import json
import shutil
from pathlib import Path

from kits import faulty_program, processes
from kits.runs import assert_same_bits, lines, load, pretraining
from kits.small import SMALL, write_corpus

from bert_jax.checkpoints import reader
from bert_jax.commands import inspect_batch
from bert_jax.runs import status, timing

STEPS, EVERY = 30, 2  # steps of a run, and of `checkpoint.every`
HALF = 20  # the last checkpoint of a half-done run
ALONE, TOGETHER = "alone", "together"
KINDS = (ALONE, TOGETHER)
DEVICES = {ALONE: [8], TOGETHER: [1, 1]}  # of each process
BATCHES = {ALONE: "", TOGETHER: "batches"}  # directory of saved batches; '' stands for the store
LIMIT = 300.0  # seconds for a process to end, on a machine that may be busy


class World:
    """The files that all fault tests share, in a directory. By default, a run is a single process."""

    def __init__(self, directory: Path):
        self.directory = directory
        write_corpus(directory / "corpus.txt", documents=60)
        self.settings = SMALL | {
            "corpus.source": directory / "corpus.txt",
            "store": directory / "store",
            "phases.main.steps": STEPS,
            "log.every": 1,
            "evaluate.every": 10,  # after a save, so that a kill may fall between
            "evaluate.rows": 16,
            "checkpoint.every": EVERY,
            "checkpoint.keep": 3,
        }
        batches = directory / BATCHES[TOGETHER]
        inspect_batch.save(load(self.settings), 0, STEPS, batches, lambda line: None)
        for kind in KINDS:
            # Every checkpoint is kept, since half-done runs are built from them.
            self.check_ended(self.run(directory / kind, kind, **{"checkpoint.keep": STEPS}))

    def start(self, run, kind=ALONE, fault="", variables=None, **changes):
        """Starts the processes that train in `run`; returns [Popen]. fault: as in kits/faulty_program.py."""
        batches = BATCHES[kind] and self.directory / BATCHES[kind]
        command = pretraining(self.settings | {"batches": batches}, run, **changes)
        devices = DEVICES[kind]
        env = {faulty_program.FAULT: fault} | (variables or {})
        return processes.started(command, self.directory / "output", len(devices), devices, **env)

    def wait(self, running, seconds: float = LIMIT) -> list[processes.Ended]:
        return processes.wait(running, self.directory / "output", seconds)

    def run(self, *arguments, seconds: float = LIMIT, **changes) -> list[processes.Ended]:
        """Runs processes that train until they end."""
        with self.start(*arguments, **changes) as running:
            return self.wait(running, seconds)

    def half_done(self, run: Path, kind: str = ALONE) -> Path:
        """Copies the undisturbed run, as a kill would have left it after step HALF."""
        shutil.copytree(self.directory / kind, run)
        (run / "summary.json").unlink()
        for path in (run / "checkpoints").iterdir():
            if not HALF - 3 * EVERY < int(path.name) <= HALF:
                shutil.rmtree(path)
        return run

    def check_ended(self, ended, code: int = 0) -> None:
        assert all(process.code == code for process in ended), ended

    def finish(self, run: Path, kind: str = ALONE, **changes) -> int:
        """Resumes a disturbed run to its end, and asserts the bits of the undisturbed one; returns the step that it
        resumed from."""
        ended = self.run(run, kind, **changes)
        self.check_ended(ended)
        self.check_same(run, kind)
        _, is_resumed, rest = ended[0].output.partition("resumed from step ")
        return int(rest.split()[0]) if is_resumed else 0

    def check_same(self, run: Path, kind: str) -> None:
        """Asserts that metrics.jsonl, except for times, and the last checkpoint equal those of the undisturbed run."""
        assert (run / "summary.json").exists() and status.status(run)["state"] == "done"
        assert metrics(run) == metrics(self.directory / kind)
        ends = [place / f"checkpoints/{STEPS}" for place in (run, self.directory / kind)]
        for item in reader.ITEMS:
            assert_same_bits(*(reader.read(end, item) for end in ends))


def metrics(run: Path) -> list[dict]:
    """Reads metrics.jsonl without times."""
    return [{key: line[key] for key in line.keys() - timing.TIMES} for line in lines(run)]


def last_step(run: Path) -> int:
    """Returns the last step that a run has reported, 0 before the first."""
    path = run / "metrics.jsonl"
    ends = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return json.loads(ends[-1])["step"] if ends else 0
