"""launch/tpu.sh, with the real bert-jax on its workers and the run in a bucket: slices that are taken change no bit."""

import functools
import json
import re
import subprocess
import sys
import time

import pytest
from kits import processes, running
from kits.clouds import watched
from kits.small import SMALL, overrides, write_corpus

from bert_jax.checkpoints import reader
from bert_jax.commands import inspect_batch
from bert_jax.runs import mirror, workdir

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN = ("--name", "slice", "--type", "v5litepod-16", "--zone", "us-west4-a", "--spot", "--delete")
STEPS, EVERY, TIMES = 70, 10, 5
# The checkout's bert-jax, as it is on a worker that has installed it.
PROGRAM = f"""#!/usr/bin/env bash
exec {sys.executable} -m bert_jax "$@"
"""


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with watched(tmp_path / "cloud", monkeypatch) as make:
        yield functools.partial(make, PROGRAM)


def save_batches(tmp_path, there) -> dict:
    """Settings of a run on batches in the bucket: a start that imports no TensorFlow is half as long."""
    write_corpus(tmp_path / "corpus.txt", documents=60)
    settings = SMALL | {
        "corpus.source": str(tmp_path / "corpus.txt"),
        "store": str(tmp_path / "store"),
        "phases.main.steps": STEPS,
        "checkpoint.every": EVERY,
        "checkpoint.keep": STEPS,
        "evaluate.every": STEPS,
    }
    batches = tmp_path / "batches"
    inspect_batch.save(running.load(settings), 0, STEPS, batches, lambda line: None)
    there.copy(batches, "batches")
    return settings | {"batches": "gs://bucket/batches"}


class Taker:
    """Whatever asks the bucket: once a checkpoint is in it that was not, the slice is taken that waits for it, and
    gets no more answers until then."""

    def __init__(self, there, events, slice_json):
        self.there, self.events, self.slice = there, events, slice_json
        events.mkdir()

    def __call__(self, method: str, name: str) -> int:
        for path in self.there.names("slice/checkpoints/"):
            if path.endswith(f"/{reader.COMMITTED}"):
                (self.events / path.split("/")[-2]).touch()
        waited = False
        while self.is_taking():
            waited = True
            time.sleep(0.02)
        return 503 if waited else 0

    def is_taking(self) -> bool:
        try:
            found = json.loads(self.slice.read_text())
        except FileNotFoundError:
            return False
        names = [path.rpartition("/")[2] for path in found["taken_at"]]
        return not found.get("taken") and any((self.events / name).exists() for name in names)


@pytest.mark.slow
def test_a_slice_taken_five_times_ends_with_the_same_parameters(cloud, there, tmp_path):
    settings = save_batches(tmp_path, there)
    words = ["pretrain", "--config", "demo"]
    words += [f"--config.{override}" for override in overrides(settings)]
    calm, variables = tmp_path / "calm", processes.environment(1, XDG_CACHE_HOME="")
    command = [sys.executable, "-m", "bert_jax", *words, "--workdir", str(calm)]
    subprocess.run(command, env=variables | {"HOME": str(tmp_path)}, check=True)

    events = tmp_path / "events"
    life = {"taken_at": [str(events / f"{step}") for step in range(EVERY, STEPS, EVERY)]}
    here = cloud(slices=[*[life] * TIMES, {}])
    there.fault = Taker(there, events, here.place / "slices/slice/slice.json")
    command = [*RUN, "--bucket", "gs://bucket", "--", *words]
    code, said = here.run("tpu.sh", *command, **variables | {"FASTER": "50"})
    assert code == 0, said
    assert len(here.calls("create")) == TIMES + 1 and not list(here.place.glob("slices/*"))
    log = (here.place / "bucket/bucket/slice/logs/host-worker-0.log").read_text()
    assert int(re.search("resumed from step ([0-9]+)", log)[1]) >= TIMES * EVERY
    with mirror.copied("gs://bucket/slice") as copy:
        ends = [workdir.checkpoints(place) / f"{STEPS}" for place in (calm, copy)]
        one, other = map(reader.read_manifest, ends)
        assert one == other  # fingerprints of all arrays, of the optimizer's too
        assert not reader.problem(ends[1], workdir.read_json(copy / "run.json")["run"])
