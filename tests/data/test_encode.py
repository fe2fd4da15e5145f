"""`prepare`, killed, stopped or out of disk space, leaves no process and resumes from finished shards."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import files, make_text, processes, shard_files, start
from kits.waiting import wait_until

from bert_jax.data import store as stores

OPTIONS = "--runner=DirectRunner -- --direct_running_mode=multi_processing --direct_num_workers=2"
BEAM = OPTIONS.split()
needs_beam = pytest.mark.skipif(not find_spec("apache_beam"), reason="needs the extra beam")


@pytest.fixture
def make(tmp_path):
    """make(key=value...) -> a config with about forty shards of two sources, for two workers."""
    texts = make_text(20_000)
    other = corpora.write(tmp_path / "other.txt", texts[:1000] + make_text(3000, seed=1))
    changes = f"corpus.source={tmp_path}/corpus.txt,{other}", "corpus.workers=2"
    return lambda *more: corpora.config_of(tmp_path, texts, *changes, *more)


def finish(config, directory: Path, *options: str) -> str:
    """Runs `prepare` to its end; returns its log."""
    process = start(config, directory, options=options)
    _, logged = process.communicate(timeout=120)
    assert process.returncode == 0, logged
    stores.open_store(config.store, hashes=True)
    assert not list(Path(config.store).parent.glob(".*"))
    return logged


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, options",
    [
        (signal.SIGKILL, ()),
        pytest.param(signal.SIGTERM, (), marks=pytest.mark.full),
        pytest.param(signal.SIGINT, (), marks=pytest.mark.full),
        pytest.param(signal.SIGKILL, BEAM, marks=[pytest.mark.full, needs_beam]),
        pytest.param(signal.SIGTERM, BEAM, marks=[pytest.mark.full, needs_beam]),
    ],
)
def test_resumes_from_finished_shards_after_a_stop(make, tmp_path, monkeypatch, number, options):
    """The store is bitwise that of an uninterrupted run."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # for files of Beam after a kill
    undisturbed = corpora.prepare(make(f"store={tmp_path}/undisturbed"))
    config = make()
    process = start(config, tmp_path, options=options)
    wait_until(lambda: len(shard_files(config)) > 1)
    # Ctrl-C in a terminal signals the workers, too.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    _, logged = process.communicate(timeout=60)
    wait_until(lambda: not processes(process.pid))
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    # After a SIGKILL, Beam's workers and Python's resource tracker complain.
    assert number == signal.SIGKILL or ("Traceback" not in logged and "leaked" not in logged)
    assert number != signal.SIGINT or "interrupted; run again to resume from" in logged
    assert not Path(config.store).exists()
    existing = shard_files(config)
    logged = finish(config, tmp_path, *options)
    assert f"{len(existing)} shards" in logged
    assert files(config.store) == files(undisturbed.path)


@pytest.mark.full
def test_a_full_disk_is_reported_in_one_line_and_keeps_the_shards(make, tmp_path):
    """A limit on file sizes simulates a full disk: writing the splits fails."""
    config = make()
    before = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))"
    process = start(config, tmp_path, before)
    _, logged = process.communicate(timeout=60)
    *_, last = logged.strip().split("\n")
    assert process.returncode == 1 and "Traceback" not in logged
    assert config.store in last and "File too large" in last
    number = len(shard_files(config))
    assert number and f"{number} shards" in finish(config, tmp_path)
