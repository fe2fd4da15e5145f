"""What a run tells: a progress bar or log lines, metrics.jsonl, TensorBoard files, status.json."""

import contextlib
import json
import math
import sys
import threading
import time
from datetime import timedelta

import numpy as np
from tqdm import tqdm

from bert_jax.runs import metrics_file, signals, timing
from bert_jax.runs import workdir as files
from bert_jax.runs.tensorboard import Board
from bert_jax.runs.workdir import Workdir

HEARTBEAT = 10  # seconds between two status.json of a run that does nothing else to tell


class Reporter:
    """Writes one run's reports. Used as a context, so that files are closed and the bar is ended."""

    def __init__(self, run: Workdir, step: int, total: int, expected_loss: tuple = ()):
        """expected_loss: as `config.expected_loss` has it."""
        self.run, self.workdir = run, run.directory
        self.first, self.step, self.total = step, step, total
        self.expected_loss = expected_loss
        self.started = time.monotonic()
        self.newest = {}  # {split: values} of its newest line
        self.lines = self.board = None
        self.state, self.lock = "running", threading.RLock()
        self.progressed = time.time()
        self.ended = threading.Event()
        terminal = sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=step, unit="step", disable=not terminal)

    def __enter__(self):
        self.status("running")
        threading.Thread(target=self.beat, daemon=True).start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.bar.close()
        for file in (self.board, self.lines):
            if file:
                with contextlib.suppress(OSError):  # a full disk has been told already
                    file.close()

    def start(self, step: int, compile_seconds: float) -> None:
        """Opens the files once the state of `step` is there; what they say of later steps goes."""
        metrics_file.drop_after(self.workdir / "metrics.jsonl", step)
        path = self.workdir / "run.json"
        known = files.read_json(path)
        begun = {"step": step, "time": time.time(), "compile_seconds": compile_seconds}
        before = known.get("starts")
        known["starts"] = [*(before if isinstance(before, list) else []), begun]
        files.write_json(path, known)
        self.lines = open(self.workdir / "metrics.jsonl", "a")
        self.board = Board(self.workdir / "tensorboard", step + 1)
        self.status("running")

    def log(self, text: str) -> None:
        """A line above the bar, or on standard output."""
        if self.bar.disable:
            with contextlib.suppress(
                OSError
            ):  # its reader has gone: the run, which may have to be saved, goes on
                print(text, flush=True)
        else:
            self.bar.write(text, file=sys.stderr)

    def advance(self, step: int) -> None:
        self.bar.update(step - self.step)
        self.step, self.progressed = step, time.time()

    def report(self, step: int, split: str, values: dict) -> None:
        """One line of metrics.jsonl, one point in TensorBoard, one line for people."""
        self.newest[split], self.progressed = values, time.time()
        values = {key: plain(value) for key, value in values.items()}
        line = {"step": step, "split": split, "time": time.time(), **values}
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()
        points = {f"{split}/{key}": value for key, value in values.items() if value is not None}
        self.board.report(step, points)
        shown = {key: value for key, value in values.items() if is_shown(key, value)}
        if split == "train" and not self.bar.disable:
            self.bar.set_postfix({key: f"{shown[key]:.4g}" for key in list(shown)[:3]})
        else:
            text = "  ".join(f"{key} {shown[key]:.4g}" for key in shown)
            if split == "train":
                left = timedelta(seconds=round(self.seconds_left()))
                text += f"  {timing.describe(values)}  {left} left"
            elif "mlm_loss" in values and (normal := expected(self.expected_loss, step)):
                text += f"  {compare(values['mlm_loss'], *normal)}"
            self.log(f"step {step}/{self.total}  {split:7}  {text}")
        self.status("running")
        self.run.try_upload()

    def beat(self) -> None:
        """In a thread: keeps status.json young while the run goes on, so that who reads it on another host knows."""
        while not self.ended.wait(HEARTBEAT):
            with contextlib.suppress(OSError), self.lock:  # training finds out by itself
                if self.state == "running" and not self.ended.is_set():
                    self.status("running")

    def status(self, state: str, **values) -> None:
        with self.lock:
            if self.state == "failed":
                return  # where another process has failed, the thread that trains may still report
            self.state = state
            files.write_status(
                self.workdir,
                state,
                step=self.step,
                steps=self.total,
                seconds_left=None if state != "running" else round(self.seconds_left()),
                loss=plain(self.newest.get("train", {}).get("loss")),
                progress=files.stamp(self.progressed),
                heartbeat=HEARTBEAT,
                **values,
            )

    def last_word(self, state: str, **values) -> None:
        """How the run ended. On a full disk, or where the workdir is gone, only its output and exit code say so."""
        with contextlib.suppress(OSError):
            self.status(state, **values)

    def failed(self, reason: str, code: int) -> None:
        """The last word of a run that ends unsaved."""
        state = "failed"
        if code == signals.INTERRUPTED:
            state, reason = "interrupted", "before it was saved"
        self.last_word(state, error=reason[:500])

    def has(self, step: int, split: str) -> bool:
        """Whether there is a line of this step, in this start or an earlier one."""
        lines = metrics_file.lines(self.workdir / "metrics.jsonl")
        return any((line["step"], line["split"]) == (step, split) for line in lines)

    def summarize(self) -> None:
        """summary.json: the last numbers of each split, the seconds of all starts together."""
        known = files.read_json(self.workdir / "run.json")
        lines = metrics_file.lines(self.workdir / "metrics.jsonl")
        summary = {
            "parameters": known["parameters"],
            "unigram_entropy": known["unigram_entropy"],
            "steps": self.total,
            "seconds": sum(line["seconds"] for line in lines if line["split"] == "train"),
            "starts": len(known["starts"]),
            **{line["split"]: line for line in lines},
        }
        files.write_json(self.workdir / "summary.json", summary)

    def seconds_left(self) -> float:
        done = self.step - self.first
        passed = time.monotonic() - self.started
        return (self.total - self.step) * passed / done if done else 0.0


class Silent(contextlib.nullcontext):
    """What reports in the processes that do not write: nothing."""

    def nothing(self, *_, **__) -> None:
        pass

    start = log = advance = report = status = last_word = failed = has = summarize = nothing


def expected(known: tuple, step: int) -> tuple[float, float] | None:
    """(least, largest) normal held-out masked-LM loss at a step, between known steps on a straight line."""
    steps, least, largest = known[::3], known[1::3], known[2::3]
    if not steps or not steps[0] <= step <= steps[-1]:
        return None
    return float(np.interp(step, steps, least)), float(np.interp(step, steps, largest))


def compare(loss: float, least: float, largest: float) -> str:
    """Says whether a loss is within what the config expects."""
    where = "above" if loss > largest else "below" if loss < least else "within"
    return f"mlm_loss is {where} the normal {least:.2f} to {largest:.2f}"


def is_shown(key: str, value) -> bool:
    """Whether a number is in the line for people; metrics.jsonl has all."""
    if key in ("skipped", "spikes"):
        return value > 0
    known = key in ("loss", "tokens_per_second") or key.endswith(("_loss", "_accuracy"))
    return known and value is not None


def plain(value):
    """A JSON value: numbers that are not finite become null."""
    return None if value is None or not math.isfinite(value) else value
