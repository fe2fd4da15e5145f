"""Small runs: trained in this process, or written with random parameters without training."""

import json
import os
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from kits import small
from kits.small import SMALL, VOCABULARY, overrides, small_batch, small_config, write_corpus
from kits.texts import PROSE

from bert_jax import config as configs
from bert_jax.checkpoints import fingerprint, reader, writer
from bert_jax.convert import open_model
from bert_jax.layers import counts
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import continuation, open_run, workdir
from bert_jax.runs.report import Reporter
from bert_jax.step import State
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import SPECIAL, Vocabulary
from bert_jax.train import pretrain

SIZES = {"wordpiece": 150, "unigram": 200, "bpe": 200, "byte_bpe": 300}

# Lines of metrics.jsonl with the required keys only.
TRAIN = {"step": 5, "split": "train", "time": 9.0, "seconds": 1.0}
TRAIN |= {"input_seconds": 0.5, "real_token_share": None, "loss": 2.5}
HELDOUT = {"step": 5, "split": "heldout", "time": 9.5, "seconds": 0.5}


# --- Trained --------------------------------------------------------------------------------------


def train(directory: Path):
    """Prepares a store and trains an undisturbed run of 20 steps and one layer; returns (settings, workdir)."""
    write_corpus(directory / "corpus.txt", documents=60)
    paths = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    settings = SMALL | {"model.layers": 1} | {key: str(path) for key, path in paths.items()}
    assert pretrain(load(settings, **{"log.report": True}), directory / "run") == 0
    return settings, directory / "run"


def load(settings, **changes):
    return configs.load("demo", overrides(settings | changes))


def pretraining(settings, workdir, **changes) -> list[str]:
    """Returns the arguments of the command that trains with these settings."""
    keys = [f"--config.{override}" for override in overrides(settings | changes)]
    return ["pretrain", "--config", "demo", *keys, "--workdir", str(workdir)]


def lines(workdir) -> list[dict]:
    """Returns the lines of metrics.jsonl."""
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def params(workdir):
    return open_model.open_model(workdir).params


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_same_run(workdir, undisturbed, split="heldout"):
    """Asserts the same losses and parameters, to float precision."""
    ours, theirs = (
        {line["step"]: line["loss"] for line in lines(run) if line["split"] == split}
        for run in (workdir, undisturbed)
    )
    assert ours == pytest.approx(theirs, rel=1e-5)
    # Adam without bias correction divides tiny gradients by their own size, so only their sign matters.
    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
    jax.tree.map(close, params(workdir), params(undisturbed))


def use_devices(patch, number: int):
    """Makes runs of this process use its first `number` devices."""
    make = meshes.make_mesh
    devices = jax.devices()[:number]
    patch.setattr(meshes, "make_mesh", lambda config, _=None: make(config, devices))


def signal_at(patch, step: int, number: int) -> None:
    """Makes this process send itself a signal, once, after its run has reported `step` or a later one."""
    report = Reporter.report
    sent = []

    def reporting(reporter, now, *arguments):
        report(reporter, now, *arguments)
        if now >= step and not sent:
            sent.append(now)
            os.kill(os.getpid(), number)

    patch.setattr(Reporter, "report", reporting)


# --- Written --------------------------------------------------------------------------------------


def make_run(
    directory: Path, *overrides: str, kind: str = "wordpiece", step: int = 7, words=None, **facts
):
    """Writes a run to `directory`; returns its (config, vocabulary, tokenizer, params). No parameter is 0 or 1."""
    config = small_config(*overrides)
    tokenizer = words or tokenizers.train(kind, PROSE, SIZES[kind], True)
    vocabulary = Vocabulary(tokenizer.size, **tokenizer.special)
    initialize = jax.jit(base.make(config, vocabulary).init)
    params = initialize(jax.random.key(0), with_target(small.synthetic(1, 8, 1, 9, 0)))
    draw = np.random.default_rng(step)
    params = jax.tree.map(lambda x: x + draw.normal(0, 0.1, x.shape).astype(np.float32), params)
    directory.mkdir(parents=True)
    configs.save(config, directory / "config.json")
    tokenizer.save(directory / "tokenizer")
    run_info = {
        "parameters": counts.count(params, vocabulary.size),
        "vocabulary": vocabulary._asdict(),
        "tokenizer": tokenizer.fingerprint,
        "unigram_entropy": 3.5,
        "devices": ["cpu", "cpu"],
        "versions": {"jax": "0.1"},
        "config": continuation.digest(config),
    }
    workdir.write_info(directory, run_info | facts)
    save(directory, step, params)
    return config, vocabulary, tokenizer, params


def with_target(batch: dict) -> dict:
    """Returns a batch in which the target of a translation is the source."""
    names = "tokens", "positions", "sequence_ids"
    return batch | {f"target_{name}": batch[name] for name in names}


def save(directory: Path, step: int, params, keep: int = 1) -> None:
    state = State(step, params, {"count": np.int32(step)})
    leaves = fingerprint.of_tree(reader.items(state))
    with writer.manager(directory / "checkpoints", keep) as checkpoints:
        writer.save(checkpoints, step, reader.items(state), leaves, run="")
        writer.finish(checkpoints)


def untrained(tokenizer, *overrides: str) -> open_run.OpenModel:
    """Returns a model with random parameters, as `open_model` would open it; nothing is written."""
    config = small_config(*overrides)
    vocabulary = Vocabulary(tokenizer.size, **tokenizer.special)
    objective = base.make(config, vocabulary)
    params = jax.jit(objective.init)(jax.random.key(0), with_target(small_batch()))
    return open_run.OpenModel(config, {}, vocabulary, tokenizer, objective, 1, params)


def run_batch(vocabulary: Vocabulary, rows: int = 6) -> dict:
    """Returns padded rows of two segments for a run's vocabulary."""
    arrays = small_batch(rows)
    least = len(SPECIAL)
    tokens = least + arrays["tokens"] % (vocabulary.size - least)
    for name in SPECIAL:
        tokens[arrays["tokens"] == getattr(VOCABULARY, name)] = getattr(vocabulary, name)
    arrays["tokens"] = tokens
    arrays["segments"] = np.where(arrays["sequence_ids"], arrays["segments"], 0)
    return arrays
