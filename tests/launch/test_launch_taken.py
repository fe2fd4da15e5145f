"""launch/tpu.sh, with the real bert-jax on a worker and the run in a bucket: a slice that is taken changes no bit."""

import functools
import json
import sys
import time

import pytest
from kits import processes, runs
from kits.clouds import watched
from kits.small import SMALL, overrides

from bert_jax.checkpoints import reader
from bert_jax.commands import inspect_batch
from bert_jax.runs import mirror, workdir

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN = ("--name", "slice", "--type", "v5litepod-16", "--zone", "us-west4-a", "--spot", "--delete")
STEPS, EVERY = SMALL["phases.main.steps"], SMALL["checkpoint.every"]
# The checkout's bert-jax, as it is on a worker that has installed it.
PROGRAM = f"""#!/usr/bin/env bash
exec {sys.executable} -m bert_jax "$@"
"""


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with watched(tmp_path / "cloud", monkeypatch) as make:
        yield functools.partial(make, PROGRAM)


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


@pytest.mark.full
def test_a_slice_that_is_taken_ends_with_the_same_parameters(cloud, there, finished, tmp_path):
    settings, calm = finished
    # A start that imports no TensorFlow is half as long.
    inspect_batch.save(runs.load(settings), 0, STEPS, tmp_path / "batches", lambda line: None)
    there.copy(tmp_path / "batches", "batches")
    keys = overrides(settings | {"batches": "gs://bucket/batches"})
    words = ["pretrain", "--config", "demo", *(f"--config.{key}" for key in keys)]
    events = tmp_path / "events"
    here = cloud(slices=[{"taken_at": [str(events / str(EVERY))]}, {}])
    there.fault = Taker(there, events, here.place / "slices/slice/slice.json")
    variables = processes.environment(8, XDG_CACHE_HOME="") | {"FASTER": "50"}
    command = [*RUN, "--bucket", "gs://bucket", "--", *words]
    code, said = here.run("tpu.sh", *command, **variables)
    assert code == 0, said
    assert len(here.calls("create")) == 2 and not list(here.place.glob("slices/*"))
    log = (here.place / "bucket/bucket/slice/logs/host-worker-0.log").read_text()
    assert f"resumed from step {EVERY}" in log
    with mirror.copied("gs://bucket/slice") as copy:
        ends = [workdir.checkpoints(place) / f"{STEPS}" for place in (calm, copy)]
        one, other = map(reader.read_manifest, ends)
        assert one == other  # fingerprints of all arrays, of the optimizer's too
        assert not reader.problem(ends[1], workdir.read_json(copy / "run.json")["run"])
