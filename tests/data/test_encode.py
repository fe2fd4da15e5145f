"""prepare in processes that are killed, interrupted, and stopped by the machine: it goes on from whole shards."""

import functools
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import files, kill, make_text, processes, shard_files, start, wait_for

from bert_jax.data import store as stores


@pytest.fixture
def make(tmp_path):
    """Work of some twenty shards for two workers, two sources, with every filter."""
    texts = make_text(10_000)
    corpora.write(tmp_path / "other.txt", texts[:1000] + make_text(3000, seed=1))
    sources = f"corpus.source={tmp_path}/corpus.txt,{tmp_path}/other.txt"
    filters = "filter.near_duplicates=0.8", "filter.repeats=100"
    work = functools.partial(corpora.config_of, tmp_path, texts, sources, "corpus.workers=2")
    return functools.partial(work, *filters)


def finish(config, directory: Path) -> str:
    """Runs to the end; returns what was logged."""
    process = start(config, directory)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    stores.open_store(config.store, hashes=True)
    assert not shard_files(config) and not list(Path(config.store).parent.glob(".*"))
    return told


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bits(make, tmp_path):
    config = make(f"store={tmp_path}/undisturbed")
    finish(config, tmp_path)
    config, draw, kept, kills = make(), random.Random(0), 0, 0
    while not Path(config.store).exists():
        process = start(config, tmp_path)
        until(process, config, kept + draw.randrange(1, 4))
        time.sleep(draw.random() / 50)
        told = kill(process)[1]
        assert (f"continues after {kept} shards" in told) == (kept > 0)
        assert kept == 0 or "vocabulary:" not in told
        assert ("000-000001.shard: damaged" in told) == (kills == 2)
        kills += 1
        kept = len(shard_files(config))
        if kills == 2:
            damage(shard_files(config)[1])
    finish(config, tmp_path)  # what a kill leaves after the last moment
    # How many kills fit in depends on the machine; the third start found the damage.
    assert kills >= 3 and files(config.store) == files(tmp_path / "undisturbed")


def until(process, config, shards: int) -> None:
    """Waits for that many shards, or the end."""
    wait_for(lambda: len(shard_files(config)) >= shards or process.poll() is not None)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_process_and_no_store(make, tmp_path, number):
    config = make()
    process = start(config, tmp_path)
    wait_for(lambda: shard_files(config))
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: to workers too
    else:
        process.send_signal(number)
    _, told = process.communicate(timeout=60)
    wait_for(lambda: processes(process.pid) == 0)
    assert process.returncode == 128 + number
    assert "Traceback" not in told and "leaked" not in told
    assert not Path(config.store).exists() and shard_files(config)


def test_a_full_disk_is_one_line_and_the_shards_stay(make, tmp_path):
    """A limit on the size of files stands for a full disk: writing the splits fails."""
    config = make()
    before = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))"
    process = start(config, tmp_path, before)
    _, told = process.communicate(timeout=60)
    *_, last = told.strip().split("\n")
    assert process.returncode == 1 and "Traceback" not in told
    assert last.startswith(f"bert-jax: config.store={config.store!r}: not finished")
    assert "File too large" in last
    number = len(shard_files(config))
    assert number and f"continues after {number} shards" in finish(config, tmp_path)


@pytest.mark.slow
def test_what_was_left_of_another_config_or_text_is_not_used(make, tmp_path):
    config = make()
    process = start(config, tmp_path)
    wait_for(lambda: len(shard_files(config)) > 2)
    kill(process)
    left = shutil.copytree(tmp_path / ".store.preparing", tmp_path / "left")
    other = make("corpus.heldout=0.2")
    told = finish(other, tmp_path)
    assert "starts over" in told and "continues" not in told
    # The same names and sizes, other words: noticed when the text is cut into blocks again.
    shutil.rmtree(config.store)
    left.rename(tmp_path / ".store.preparing")
    text = Path(tmp_path / "corpus.txt").read_text().replace("bird", "frog")
    Path(tmp_path / "corpus.txt").write_text(text)
    process = start(config, tmp_path)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2 and "corpus.txt: the text has changed" in told
    assert not (tmp_path / ".store.preparing").exists()
    finish(config, tmp_path)
