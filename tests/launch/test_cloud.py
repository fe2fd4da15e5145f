"""A run of two processes whose store and workdir lie in a bucket: killed once in a save, with damage and a bucket that
stumbles, it ends with the bits of one on the disk; and every command reads it."""

from pathlib import Path
from typing import NamedTuple

import pytest
from kits import processes, runs
from kits.small import overrides

from bert_jax import cli
from bert_jax.checkpoints import reader
from bert_jax.errors import LOST
from bert_jax.runs import workdir

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN, STORE = "gs://bucket/runs/one", "gs://bucket/stores/one"
ABORTED = -6  # by JAX, which has heard before we have


class World(NamedTuple):
    """Two processes of four devices each."""

    settings: dict
    directory: Path  # of what they say

    def config(self) -> list[str]:
        return ["--config", "demo", *(f"--config.{key}" for key in overrides(self.settings))]

    def start(self, run):
        command = ["pretrain", *self.config(), "--workdir", str(run)]
        return processes.started(command, self.directory, 2, 4)

    def run(self, run) -> list[processes.Ended]:
        with self.start(run) as started:
            ended = processes.wait(started, self.directory)
        assert [process.code for process in ended] == [0, 0], ended
        return ended


@pytest.mark.full
@pytest.mark.slow
def test_a_run_in_a_bucket(finished, tmp_path, there):
    # A start is what takes time: one layer is compiled and traced in less.
    changes = {"store": STORE, "model.layers": 1, "evaluate.every": 20, "checkpoint.every": 5}
    world = World(finished[0] | changes, tmp_path / "said")
    there.copy(Path(finished[0]["store"]), "stores/one")
    world.run(tmp_path / "run")
    kill_in_a_save(world, there, step=10)
    # A flipped byte in this host's copy of the store, and a bucket that stumbles.
    [tokens] = tmp_path.glob("cache/bert_jax/stores/*/train/tokens.npy")
    right = tokens.read_bytes()
    tokens.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    there.fault = lambda *_: 503 if len(there.asked) % 50 == 0 else 0
    ended = world.run(RUN)
    there.fault = lambda *_: 0
    assert "resumed from step 5" in ended[0].output and tokens.read_bytes() == right
    check_same(tmp_path / "run", there)
    for arguments in (["status", "--workdir", RUN], ["verify", "--workdir", RUN]):
        assert cli.main(arguments) == 0
    answers = [tmp_path / "here", tmp_path / "there"]
    for run, answer in zip((tmp_path / "run", RUN), answers, strict=True):
        assert cli.main(["evaluate", "--workdir", str(run), "--json", str(answer)]) == 0
    assert answers[0].read_text() == answers[1].read_text()


def kill_in_a_save(world: World, there, step: int) -> None:
    """Both processes have ended, and the checkpoint is not whole."""
    victims = []

    def kill(method, name):
        if victims and name.startswith(f"runs/one/checkpoints/{step}/params") and method == "POST":
            victims[1].kill()
            victims[1].wait()
        return 0

    with world.start(RUN) as started:
        victims += started
        there.fault = kill
        ended = processes.wait(started, world.directory)
    assert ended[1].code == -9 and ended[0].code in (LOST, ABORTED), ended
    places = [f"runs/one/checkpoints/{number}/commit_success.txt" for number in (step - 5, step)]
    assert [place in there.names() for place in places] == [True, False]


def check_same(run: Path, there) -> None:
    """The run in the bucket is the one on the disk, but for its times."""
    assert not any(".lock" in name for name in there.names())
    with workdir.opened(RUN) as copy:
        one, two = ([told(line) for line in runs.lines(at)] for at in (copy.directory, run))
        assert one == two
        end = copy.checkpoints / "20"
        # Fingerprints of all arrays, of the optimizer's too.
        assert reader.read_manifest(end) == reader.read_manifest(run / "checkpoints/20")
        assert not reader.problem(end, workdir.read_json(copy.directory / "run.json")["run"])


def told(line: dict) -> dict:
    return {key: line.get(key) for key in ("step", "split", "loss", "mlm_loss", "fill")}
