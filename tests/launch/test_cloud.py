"""A run of two processes whose store and workdir lie in a bucket: each of them killed once in a save, with damage and
a bucket that stumbles, it ends with the bits of one on the disk; and every command reads it."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from kits import processes
from kits.running import load
from kits.small import SMALL, overrides, write_corpus

from bert_jax import cli
from bert_jax.checkpoints import reader
from bert_jax.commands import inspect_batch
from bert_jax.errors import LOST
from bert_jax.runs import mirror, workdir

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN, STORE = "gs://bucket/runs/one", "gs://bucket/stores/one"
ABORTED = -6  # by JAX, which has heard before we have


class World(NamedTuple):
    """Two processes of four devices each."""

    settings: dict
    directory: Path  # of what they say

    def start(self, run, **changes):
        keys = [f"--config.{override}" for override in overrides(self.settings | changes)]
        command = ["pretrain", "--config", "demo", *keys, "--workdir", str(run)]
        return processes.started(command, self.directory, 2, 4)

    def run(self, run, **changes) -> list[processes.Ended]:
        with self.start(run, **changes) as running:
            return processes.wait(running, self.directory)


def lines(text: str) -> list:
    """What does not depend on the clock."""
    return [
        {key: line.get(key) for key in ("step", "split", "loss", "mlm_loss", "fill")}
        for line in map(json.loads, text.splitlines())
    ]


def answer(tmp_path, *arguments) -> dict:
    assert cli.main([*arguments, "--json", str(tmp_path / "answer")]) == 0
    return json.loads((tmp_path / "answer").read_text())


@pytest.mark.slow
def test_a_run_in_a_bucket(tmp_path, there):
    """The last start reads the store, and those before it its batches: without TensorFlow they are half as long."""
    write_corpus(tmp_path / "corpus.txt", documents=60)
    places = {"corpus.source": str(tmp_path / "corpus.txt"), "store": STORE}
    # A start is what takes time: one layer is compiled and traced in less.
    changes = {"model.layers": 1, "evaluate.every": 20, "checkpoint.every": 5}
    world = World(SMALL | places | changes, tmp_path / "said")
    inspect_batch.save(load(world.settings), 0, 20, tmp_path / "batches", lambda line: None)
    there.copy(tmp_path / "batches", "batches")
    ended = world.run(tmp_path / "run", batches=tmp_path / "batches")
    assert [process.code for process in ended] == [0, 0], ended
    kill_in_a_save(world, there, 0, 10)
    assert "resumed from step 5" in kill_in_a_save(world, there, 1, 15)
    # A flipped byte in this host's copy of the store, and a bucket that stumbles.
    [tokens] = tmp_path.glob("cache/bert_jax/stores/*/train/tokens.npy")
    right = tokens.read_bytes()
    tokens.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    there.asked.clear()
    there.fault = lambda *_: 503 if len(there.asked) % 50 == 0 else 0
    ended = world.run(RUN)
    there.fault = lambda *_: 0
    assert [process.code for process in ended] == [0, 0], ended
    assert "resumed from step 10" in ended[0].output
    assert tokens.read_bytes() == right
    read = [name for method, name in there.asked if method == "READ" and "/train/" in name]
    assert set(read) == {"stores/one/train/tokens.npy"}
    check(tmp_path, there)


def kill_in_a_save(world: World, there, victim: int, step: int) -> str:
    """What process 0 has said; both have ended, and the checkpoint is not whole."""
    running = []

    def kill(method, name):
        if running and name.startswith(f"runs/one/checkpoints/{step}/params") and method == "POST":
            running[victim].kill()
            running[victim].wait()
        return 0

    with world.start(RUN, batches="gs://bucket/batches") as started:
        running += started
        there.fault = kill
        ended = processes.wait(running, world.directory)
    assert ended[victim].code == -9 and ended[1 - victim].code in (LOST, ABORTED), ended
    assert f"runs/one/checkpoints/{step}/{reader.COMMITTED}" not in there.names()
    assert f"runs/one/checkpoints/{step - 5}/{reader.COMMITTED}" in there.names()
    told = lines(there.text("runs/one/metrics.jsonl"))
    assert {"step": step, "split": "train"}.items() <= told[-1].items()  # before it is saved
    return ended[0].output


def check(tmp_path, there) -> None:
    """Against the run on the disk."""
    here = tmp_path / "run"
    assert lines(there.text("runs/one/metrics.jsonl")) == lines(
        (here / "metrics.jsonl").read_text()
    )
    assert {"runs/one/summary.json", "runs/one/tokenizer/vocab.txt"} < set(there.names())
    assert not any(".lock" in name for name in there.names())
    with mirror.copied(RUN) as copy:
        kept = [
            reader.read_manifest(place / "20") for place in map(workdir.checkpoints, (copy, here))
        ]
        assert kept[0] == kept[1]  # fingerprints of all arrays, of the optimizer's too
        place = workdir.checkpoints(copy)
        run = json.loads((copy / "run.json").read_text())["run"]
        assert reader.problems(place, run) == {15: "", 20: ""}
    assert answer(tmp_path, "status", "--workdir", RUN)["state"] == "done"
    assert answer(tmp_path, "verify", "--workdir", RUN)["sound"]
    assert answer(tmp_path, "verify", "--store", STORE)["sound"]
    for arguments in (["evaluate", "--workdir"], ["inspect", "--step", "3", "--config"]):
        ends = [
            f"{name}/config.json" * (arguments[0] == "inspect") or str(name) for name in (here, RUN)
        ]
        one, two = (answer(tmp_path, *arguments, end) for end in ends)
        assert one == two
