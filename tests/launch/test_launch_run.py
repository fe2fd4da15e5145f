"""launch/run.sh: which checkpoint of a run at an address is the newest."""

import json
import os
import subprocess
import sys

import pytest
from kits.clouds import ROOT

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")

STATUS = {
    "state": "preempted",
    "step": 130,
    "steps": 200,
    "pid": 1,
    "born": 1,
    "host": "h",
    "time": "t",
}
PROGRAM = f"""#!/usr/bin/env bash
exec {sys.executable} -m bert_jax "$@"
"""


def test_the_newest_checkpoint_in_a_bucket(tmp_path):
    (tmp_path / "bert-jax").write_text(PROGRAM)
    (tmp_path / "bert-jax").chmod(0o755)
    with bucket.Bucket() as there:
        settings = os.environ | there.environment() | {"PYTHONPATH": str(ROOT)}
        settings["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        line = f"source {ROOT}/launch/run.sh && newest bert-jax pretrain --workdir gs://bucket/run"

        def newest() -> int:
            told = subprocess.run(
                ["bash", "-ec", line], env=settings, capture_output=True, check=True
            )
            return int(told.stdout)

        assert newest() == -1  # nothing is there
        for last, found in {None: -1, 120: 120}.items():
            status = json.dumps(STATUS | {"last_checkpoint": last}).encode()
            there.put("run/status.json", status, {})
            assert newest() == found
