"""A run of the tests' small world in this process: training it, reading what it has left, stopping it."""

import json
import os
import threading
import time
from pathlib import Path

import jax
import numpy as np
from kits.small import SMALL, overrides, write_corpus

from bert_jax import config
from bert_jax.commands import load_model
from bert_jax.train import pretrain


def train(directory: Path):
    """(settings, workdir) of a prepared store and of an undisturbed run of 20 steps."""
    write_corpus(directory / "corpus.txt", documents=60)
    places = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    settings = SMALL | {key: str(path) for key, path in places.items()}
    assert pretrain(load(settings), directory / "run") == 0
    return settings, directory / "run"


def load(settings, **changes):
    return config.load("demo", overrides(settings | changes))


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def params(workdir):
    return load_model.open_run(workdir).params


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def signal_after(workdir, step, number):
    """Sends this process a signal once the run has reported `step`."""

    def wait():
        while not (workdir / "metrics.jsonl").exists() or not any(
            line["step"] >= step for line in lines(workdir)
        ):
            time.sleep(0.002)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
