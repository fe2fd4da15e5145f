"""Reports of a run: a progress bar or log lines, metrics.jsonl, TensorBoard files, status.json."""

import json
import os
import sys
import threading
import time
from contextlib import nullcontext, suppress
from datetime import timedelta

from tqdm import tqdm

from bert_jax import config as configs
from bert_jax.objectives import base
from bert_jax.runs import metrics, metrics_file, samples, signals
from bert_jax.runs import workdir as files
from bert_jax.runs.tensorboard import EventFile
from bert_jax.runs.weights_and_biases import Uploads
from bert_jax.runs.workdir import Workdir
from bert_jax.storage import json_file
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import Vocabulary

IN_LOG = 2  # samples of an evaluation that the log has
HEARTBEAT = 10  # seconds between two writes of status.json without other reports


class Reporter:
    """The reports of one run. A context manager, so that the files and the bar are closed."""

    def __init__(self, run: Workdir, step: int, config):
        """step: the last completed step."""
        self.run = run
        self.workdir = run.directory
        self.metrics = run.directory / "metrics.jsonl"
        self.samples_path = run.directory / "samples.jsonl"
        self.config = config
        self.first = self.step = step
        self.total = configs.total_steps(config)
        self.loss = None  # of the newest line of training
        self.flops = {}  # {phase: FLOPs of a step}
        self.lines = None
        self.curves = []
        self.state = "running"
        self.lock = threading.RLock()
        self.started = time.monotonic()
        self.progressed = time.time()
        self.ended = threading.Event()
        # Some pseudo-terminals have width 0, in which tqdm would show nothing.
        has_bar = sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns
        self.bar = tqdm(total=self.total, initial=step, unit="step", disable=not has_bar)

    def __enter__(self):
        self.status("running")
        threading.Thread(target=self.send_heartbeats, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.bar.close()
        for file in filter(None, (*self.curves, self.lines)):
            with suppress(OSError):  # a full disk was already reported
                file.close()

    def start(self, step: int, compile_seconds: float) -> None:
        """Opens the files after the state of `step` was restored or initialized, and drops their lines of later
        steps."""
        metrics_file.drop_after(self.metrics, step)
        metrics_file.drop_after(self.samples_path, step, metrics_file.SAMPLES)
        info = files.read_info(self.workdir)
        start = {"step": step, "time": time.time(), "compile_seconds": compile_seconds}
        info.setdefault("starts", []).append(start)
        files.write_info(self.workdir, info)
        vocabulary = Vocabulary(**info["vocabulary"])
        self.headline_metric = base.make(self.config, vocabulary).headline
        self.entropy = info["unigram_entropy"]
        self.flops = {name: phase["flops_per_step"] for name, phase in info["phases"].items()}
        self.lines = open(self.metrics, "a")
        self.curves.append(EventFile(self.workdir / "tensorboard", step + 1))
        self.log(f"to see the curves: tensorboard --logdir {self.run.name}/tensorboard")
        if self.config.log.wandb:
            keys = dict(id=info["run"], dir=self.workdir, name=self.workdir.name)
            uploads = Uploads(self.config, **keys)
            self.curves.append(uploads)
            self.log(f"Weights & Biases: {uploads.address}")
        self.status("running")

    def log(self, text: str) -> None:
        """Prints a line above the bar, or on standard output if there is no bar."""
        if self.bar.disable:
            with suppress(OSError):  # a closed pipe must not end the run unsaved
                print(text, flush=True)
        else:
            self.bar.write(text, file=sys.stderr)

    def advance(self, step: int) -> None:
        """Moves the bar to `step`."""
        self.bar.update(step - self.step)
        self.step = step
        self.progressed = time.time()

    def report(self, step: int, split: str, values: dict) -> None:
        """Writes one line to metrics.jsonl, one point to each of the curves, and one line to the log."""
        self.progressed = time.time()
        values = {key: metrics.plain(value) for key, value in values.items()}
        points = {
            f"{split}/{name}": value
            for name, value in values.items()
            if isinstance(value, int | float)
        }
        for curves in self.curves:
            curves.report(step, points)
        is_training = split == "train"
        if is_training:
            self.loss = values["loss"]
        else:
            headline = metrics.describe_headline(values, self.headline_metric, self.entropy)
            if headline:
                values["headline"] = headline
        line = {"step": step, "split": split, "time": time.time(), **values}
        print(json.dumps(line), file=self.lines, flush=True)
        if is_training and not self.bar.disable:
            self.bar.set_postfix(loss=self.loss)
        else:
            text = f"step {step}/{self.total}  {split:7}  {metrics.describe(split, values)}"
            if is_training:
                text += f"  {timedelta(seconds=round(self.seconds_left()))} left"
            self.log(text)
        self.status("running")
        self.run.try_upload()

    def show(self, step: int, split: str, guesses: dict, review: dict) -> None:
        """Writes what the model predicts in held-out rows to samples.jsonl, and in the first ones to the log. Nothing
        without guesses and review.

        guesses: see objectives.base.guess. review: see Dataset.review.
        """
        if not (guesses or review):
            return
        tokenizer = tokenizers.load(self.workdir / "tokenizer")
        rows = samples.of_rows(guesses, tokenizer) if guesses else review["samples"]
        lines = [{"row": number, "parts": parts} for number, parts in enumerate(rows)]
        if review:
            lines.append({"row": None, "tables": review["tables"]})
        with open(self.samples_path, "a") as file:
            for line in lines:
                print(json_file.encode({"step": step, "split": split, **line}), file=file)
        for parts in rows[:IN_LOG]:
            self.log(f"    {samples.as_text(parts)}")

    def send_heartbeats(self) -> None:
        """Writes status.json every HEARTBEAT seconds, so that readers on other hosts see that the run is alive. Runs in
        a thread."""
        while not self.ended.wait(HEARTBEAT):
            with suppress(Exception), self.lock:  # the main thread gets the same error
                if self.state == "running" and not self.ended.is_set():
                    self.status("running")

    def status(self, state: str, **values) -> None:
        """Writes status.json. state: as in `workdir.write_status`."""
        with self.lock:
            if self.state == "failed":
                return  # after another process has failed, the main thread may still report
            self.state = state
            files.write_status(
                self.workdir,
                state,
                step=self.step,
                steps=self.total,
                seconds_left=round(self.seconds_left()) if state == "running" else None,
                loss=self.loss,
                progress=files.stamp(self.progressed),
                **values,
            )

    def end(self, state: str, **values) -> None:
        """Writes the final state. An error of this would hide the one that ended the run, and is ignored."""
        with suppress(Exception):
            self.status(state, **values)

    def fail(self, reason: str, code: int) -> None:
        """Writes the final state of a run that ended by an error. code: its exit code."""
        if code == signals.INTERRUPTED:
            self.end("interrupted", error="interrupted before the current step was saved")
        else:
            self.end("failed", error=reason[:500])

    def has_line(self, step: int, split: str) -> bool:
        """Returns whether metrics.jsonl has a line of this step and split, from this start or an earlier one."""
        return any((line["step"], line["split"]) == (step, split) for line in self.read())

    def read(self) -> list[dict]:
        """Returns the lines of metrics.jsonl, of this start and earlier ones."""
        return metrics_file.lines(self.metrics)

    def summarize(self, best: dict) -> None:
        """Writes summary.json: the last line of each split, the best evaluation, and the seconds of all starts."""
        info = files.read_info(self.workdir)
        lines = self.read()
        summary = {
            "parameters": info["parameters"],
            "unigram_entropy": info["unigram_entropy"],
            "steps": self.step,
            "best": best,
            "seconds": sum(line["seconds"] for line in lines if line["split"] == "train"),
            "starts": len(info["starts"]),
            **{line["split"]: line for line in lines},
        }
        json_file.write(self.workdir / "summary.json", summary)

    def seconds_left(self) -> float:
        """Estimates the remaining seconds from the FLOPs per second of this start."""

        def flops(step: int) -> float:
            steps = configs.steps_by_phase(self.config, step)
            return sum(steps[name] * self.flops[name] for name in self.flops)

        done = flops(self.step) - flops(self.first)
        if done <= 0:
            return 0.0
        remaining = flops(self.total) - flops(self.step)
        return remaining / done * (time.monotonic() - self.started)


class SilentReporter(nullcontext):
    """The Reporter of processes other than 0, which does nothing."""

    def __getattr__(self, name: str):
        return lambda *_, **__: None
