"""A run whose store and workdir lie in a bucket, in real processes: killed in a save, with damage and a bucket that
stumbles, it ends with the bits of one on the disk; and every command reads it."""

import json
import subprocess
import sys

import pytest
from processes import environment
from small import SMALL, overrides, write_corpus

from bert_jax import main, mirror, stored, workdir

bucket = pytest.importorskip("bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN, STORE = "gs://bucket/runs/one", "gs://bucket/stores/one"
LONGEST = 300  # seconds of a process


def start(tmp_path, store, run) -> subprocess.Popen:
    settings = SMALL | {"corpus.source": str(tmp_path / "corpus.txt"), "store": str(store)}
    changes = [f"--config.{override}" for override in overrides(settings)]
    command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", "demo", "--workdir"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([*command, str(run), *changes], env=environment(1), **pipes)


def ended(process) -> tuple[int, str]:
    output, errors = process.communicate(timeout=LONGEST)
    return process.returncode, output + errors


def lines(text: str) -> list:
    """What does not depend on the clock."""
    return [
        {key: line.get(key) for key in ("step", "split", "loss", "mlm_loss", "fill")}
        for line in map(json.loads, text.splitlines())
    ]


def answer(tmp_path, *arguments) -> dict:
    assert main.main([*arguments, "--json", str(tmp_path / "answer")]) == 0
    return json.loads((tmp_path / "answer").read_text())


@pytest.mark.slow
def test_a_run_in_a_bucket(tmp_path, there):
    write_corpus(tmp_path / "corpus.txt", documents=60)
    assert ended(start(tmp_path, tmp_path / "store", tmp_path / "run"))[0] == 0
    kill_in_a_save(tmp_path, there)
    # A flipped byte in this host's copy of the store, and a bucket that stumbles.
    [tokens] = tmp_path.glob("cache/bert_jax/stores/*/train/tokens.npy")
    right = tokens.read_bytes()
    tokens.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    there.asked.clear()
    there.fault = lambda *_: 503 if len(there.asked) % 50 == 0 else 0
    code, said = ended(start(tmp_path, STORE, RUN))
    there.fault = lambda *_: 0
    assert code == 0 and "resumed from step 10" in said, said
    assert tokens.read_bytes() == right
    read = [name for method, name in there.asked if method == "READ" and "/train/" in name]
    assert set(read) == {"stores/one/train/tokens.npy"}
    check(tmp_path, there)


def kill_in_a_save(tmp_path, there) -> None:
    running = []

    def kill(method, name):
        if running and name.startswith("runs/one/checkpoints/20/params") and method == "POST":
            running[0].kill()
            running[0].wait()
        return 0

    there.fault = kill
    running.append(start(tmp_path, STORE, RUN))
    assert ended(running[0])[0] == -9
    assert f"runs/one/checkpoints/20/{stored.COMMITTED}" not in there.names()
    assert f"runs/one/checkpoints/10/{stored.COMMITTED}" in there.names()
    assert lines(there.text("runs/one/metrics.jsonl"))[-1]["step"] == 20  # told before it is saved


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
            stored.read_manifest(place / "20") for place in map(workdir.checkpoints, (copy, here))
        ]
        assert kept[0] == kept[1]  # fingerprints of all arrays, of the optimizer's too
        place = workdir.checkpoints(copy)
        run = json.loads((copy / "run.json").read_text())["run"]
        assert stored.problems(place, run) == {10: "", 20: ""}
    assert answer(tmp_path, "status", "--workdir", RUN)["state"] == "done"
    assert answer(tmp_path, "verify", "--workdir", RUN)["sound"]
    assert answer(tmp_path, "verify", "--store", STORE)["sound"]
    for arguments in (["evaluate", "--workdir"], ["inspect", "--step", "3", "--config"]):
        ends = [
            f"{name}/config.json" * (arguments[0] == "inspect") or str(name) for name in (here, RUN)
        ]
        one, two = (answer(tmp_path, *arguments, end) for end in ends)
        assert one == two
