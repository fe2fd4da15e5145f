"""One of two real processes is killed or gets stuck: both are gone by the deadline, each with a reason, and the
next start goes on."""

import json
import time

import jax
import pytest
from kits import processes, stuck
from kits.small import SMALL, overrides, write_corpus

from bert_jax import errors
from bert_jax.checkpoints import reader
from bert_jax.cli import main
from bert_jax.commands import load_model
from bert_jax.runs import watchdog

DEADLINES = {"compile": 60, "step": 6, "save": 10, "evaluate": 10}  # seconds
SLACK = 8.0  # seconds: what else a busy machine takes until the last is gone
STEPS = 80  # every start does a few
FAULTS = [
    "1:step:4:kill",
    "0:step:4:kill",
    "1:step:4:stop",
    "0:step:4:stop",
    "0:step:4:sleep",
    "1:step:4:hold",
    "1:compile:0:sleep",
    "1:open:0:sleep",
    "0:open:0:stop",
    "0:restore:0:stop",
    "1:restore:0:hold",
    "0:save:1:stop",
    "1:save:1:hold",
    "1:evaluate:0:kill",
    "0:evaluate:0:sleep",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Settings of a prepared store, and the directory of one run that every test goes on with; beside it a run of two
    processes, too, that nothing happens to."""
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=60)
    settings = SMALL | {
        "corpus.source": str(directory / "corpus.txt"),
        "store": str(directory / "store"),
        "phases.main.steps": STEPS,
        "log.every": 1,
        "checkpoint.every": 2,
        "evaluate.every": 0,
    }
    assert main(["prepare", *keys(settings)]) == 0
    ended = run(command(settings, directory / "undisturbed"), directory / "said")
    assert [process.code for process in ended] == [0, 0], ended
    settings |= {f"deadlines.{key}": seconds for key, seconds in DEADLINES.items()}
    return settings, directory


def keys(settings):
    return ["--config", "demo", *(f"--config.{override}" for override in overrides(settings))]


def command(settings, workdir, **changes):
    return ["pretrain", *keys(settings | changes), "--workdir", str(workdir)]


def run(arguments, directory, **variables):
    """Two processes, to their end."""
    return processes.run(arguments, directory, 2, 1, program=stuck.__file__, **variables)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_all_end_by_the_deadline(world, tmp_path, fault):
    settings, directory = world
    process, place, _, what = fault.split(":")
    victim, before = int(process), reader.newest(directory / "run/checkpoints")
    key = stuck.ARMED.get(place, place)
    if place == "restore" and before is None:
        key = "compile"  # there is nothing to restore
    limit = DEADLINES[key]
    changes = {"evaluate.every": 3} if place == "evaluate" else {}
    if key == "compile":
        changes = {"deadlines.compile": (limit := 25)}
    arguments = command(settings, directory / "run", **changes)
    ended = run(arguments, tmp_path, **{stuck.FAULT: fault})
    took = time.time() - stuck.when(ended[victim].errors)
    assert took < limit + watchdog.MOMENT + SLACK, ended
    codes = ended[victim].code, ended[1 - victim].code
    # By its own deadline, or before that by JAX, because the other is gone.
    assert codes[0] in {-9, -6} and codes[1] in {-9, -6, errors.LOST}, ended
    said = [ended[number].errors for number in (victim, 1 - victim)]
    assert said[1].strip(), "the other says nothing"
    if what != "kill":
        assert "tests/kits/stuck.py" in said[0] and "in faulty" in said[0], (
            "no stack of what is stuck"
        )
    if before and place in ("step", "save", "evaluate"):
        assert f"resumed from step {before}" in ended[0].output


@pytest.mark.slow
def test_what_is_left_ends_like_a_run_that_was_never_disturbed(world, tmp_path):
    settings, directory = world
    ended = run(command(settings, directory / "run"), tmp_path)
    assert [process.code for process in ended] == [0, 0], ended
    text = (directory / "run/metrics.jsonl").read_text()
    steps = [
        line["step"] for line in map(json.loads, text.splitlines()) if line["split"] == "train"
    ]
    assert steps == list(range(1, STEPS + 1))
    ours, theirs = (load_model.open_run(directory / name).params for name in ("run", "undisturbed"))
    for (path, a), b in zip(jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        assert a.tobytes() == b.tobytes(), path
