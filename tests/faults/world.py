"""The world in which faults happen: a store, saved batches, undisturbed runs, and what a disturbed one has to end with.

A run alone has eight devices; two processes together have one each, so that either has a reference with its own bits.
The one reads the store, and builds the indexes of later epochs as it trains; the others read saved batches.
"""

import json
import shutil
from pathlib import Path

from kits import processes, stuck
from kits.runs import assert_same_bits, lines, load, pretraining
from kits.small import SMALL, write_corpus

from bert_jax.checkpoints import reader
from bert_jax.commands import inspect_batch
from bert_jax.runs import status, timing

STEPS, EVERY = 30, 2  # steps of a run, and after how many it is saved
HALF = 20  # the step of the last checkpoint of a run that is half done
ALONE, TOGETHER = "alone", "together"
KINDS = (ALONE, TOGETHER)
DEVICES = {ALONE: [8], TOGETHER: [1, 1]}  # of each process
BATCHES = {ALONE: "", TOGETHER: "batches"}  # where they are saved; '' is the store
LIMIT = 300.0  # seconds for whatever ends by itself, on a machine that others may use too


class World:
    """What is made once, in a directory. A run that is not named otherwise is one process's."""

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
            # Every checkpoint is kept: a run that is half done is made of them.
            self.check_ended(self.run(directory / kind, kind, **{"checkpoint.keep": STEPS}))

    def start(self, run, kind=ALONE, fault="", variables=None, **changes):
        """[Popen] of the processes that train in `run`. fault: what happens to them by itself, as in kits/stuck.py."""
        batches = BATCHES[kind] and self.directory / BATCHES[kind]
        command = pretraining(self.settings | {"batches": batches}, run, **changes)
        devices = DEVICES[kind]
        told = {stuck.FAULT: fault} | (variables or {})
        return processes.started(command, self.directory / "said", len(devices), devices, **told)

    def wait(self, running, seconds: float = LIMIT) -> list[processes.Ended]:
        return processes.wait(running, self.directory / "said", seconds)

    def run(self, *arguments, seconds: float = LIMIT, **changes) -> list[processes.Ended]:
        """Processes that train and are left alone."""
        with self.start(*arguments, **changes) as running:
            return self.wait(running, seconds)

    def half_done(self, run: Path, kind: str = ALONE) -> Path:
        """The undisturbed run as a kill would have left it after step HALF."""
        shutil.copytree(self.directory / kind, run)
        (run / "summary.json").unlink()
        for path in (run / "checkpoints").iterdir():
            if not HALF - 3 * EVERY < int(path.name) <= HALF:
                shutil.rmtree(path)
        return run

    def check_ended(self, ended, code: int = 0) -> None:
        assert all(process.code == code for process in ended), ended

    def finish(self, run: Path, kind: str = ALONE, **changes) -> int:
        """Lets a disturbed run go on to its end, with the bits of the undisturbed one; the step it has gone on from."""
        ended = self.run(run, kind, **changes)
        self.check_ended(ended)
        self.check_same(run, kind)
        _, is_resumed, rest = ended[0].output.partition("resumed from step ")
        return int(rest.split()[0]) if is_resumed else 0

    def check_same(self, run: Path, kind: str) -> None:
        """metrics.jsonl but for its times, and all that is saved at the end, are those of the undisturbed run."""
        assert (run / "summary.json").exists() and status.status(run)["state"] == "done"
        assert told(run) == told(self.directory / kind)
        ends = [place / f"checkpoints/{STEPS}" for place in (run, self.directory / kind)]
        for item in reader.ITEMS:
            assert_same_bits(*(reader.read(end, item) for end in ends))


def told(run: Path) -> list[dict]:
    """metrics.jsonl without what depends on the clock."""
    return [{key: line[key] for key in line.keys() - timing.TIMES} for line in lines(run)]


def last_step(run: Path) -> int:
    """The last step that a run has reported, 0 where there is none yet."""
    path = run / "metrics.jsonl"
    ends = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return json.loads(ends[-1])["step"] if ends else 0
