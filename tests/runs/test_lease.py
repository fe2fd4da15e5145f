"""The lock of a workdir in a bucket: of two that want it one has it, whatever is late, lost or silent."""

import contextlib
import json
import os
import threading
import time

import pytest

from bert_jax.errors import Missing, Unfinished
from bert_jax.runs import lease, mirror, workdir
from bert_jax.runs.lease import Lease
from bert_jax.storage import remote

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN, LOCK = "gs://bucket/runs/one", "runs/one/.lock"


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(lease, "PERIOD", 0.1)


def one() -> Lease:
    return Lease(remote.Place(RUN))


def put(there, **changes) -> None:
    """The lock of a process that has ended on this host, but for the changes."""
    holder = {"lease": "x", "pid": 1 << 30, "born": 1, "time": 0.0} | workdir.here()
    there.put(LOCK, json.dumps(holder | changes).encode(), {})


def whose(there) -> str:
    return json.loads(there.text(LOCK))["lease"]


def test_it_goes_with_its_holder(there):
    with one().held():
        assert json.loads(there.text(LOCK))["pid"] == os.getpid()
    assert not there.names()


def test_two_do_not_hold_it(there, monkeypatch):
    """Nor two processes of one number in containers of one name; the exit code is that of what may go next time."""
    monkeypatch.setattr(lease, "SILENCE", 1.0)
    first, start = one(), time.monotonic()
    with first.held():
        with pytest.raises(Missing, match=f"^--workdir {RUN}: another process is training in it"):
            one().take()
        assert time.monotonic() - start > 1.0 and whose(there) == first.lease


def test_it_is_waited_for(there):
    """By the next start, while the one before saves for the last time."""
    first, next_one = one(), one()
    first.take()
    ending = threading.Timer(0.5, first.release)
    ending.start()
    next_one.take()
    ending.join()
    assert whose(there) == next_one.lease


def test_that_of_a_process_that_is_gone_is_taken(there):
    put(there)
    start = time.monotonic()
    one().take()
    assert time.monotonic() - start < lease.SILENCE / 2


@pytest.mark.parametrize("text", [b"", b"[1]", b'{"lease": 1}'])
def test_a_damaged_one_is_taken(there, text):
    there.put(LOCK, text, {})
    with one().held():
        assert json.loads(there.text(LOCK))["pid"] == os.getpid()


@pytest.mark.parametrize("other", [{"host": "other"}, {"boot": "other"}, {"space": 1}])
def test_that_of_another_machine_is_taken_once_it_is_silent(there, monkeypatch, other):
    """Another container of the same name is another machine: what its numbers mean is not known here."""
    monkeypatch.setattr(lease, "SILENCE", 1.5)
    put(there, **other)
    start = time.monotonic()
    with one().held():
        assert time.monotonic() - start > 1.5


@pytest.mark.parametrize("when", ["taken", "renewed"])
def test_an_answer_that_is_lost(there, monkeypatch, when):
    """What was written is asked for again, and refused: it is there."""
    right, lost, holder, start = there.put, [], one(), time.monotonic()
    if when == "renewed":
        holder.take()

    def put_and_fail(*what):
        facts = right(*what)
        if not lost:
            lost.append(1)
            raise bucket.Refused(503)
        return facts

    monkeypatch.setattr(there, "put", put_and_fail)
    if when == "taken":
        holder.take()
    holder.confirm(0.0)
    holder.confirm(0.0)
    assert lost and whose(there) == holder.lease
    assert time.monotonic() - start < lease.SILENCE / 2  # it is not waited for as another's
    holder.release()
    assert not there.names()


def test_a_late_taker_takes_nothing(there):
    """Two have seen that it is silent: the holder speaks again before one removes it; or the other is first."""
    holder, taker, late = one(), one(), one()
    holder.take()
    _, seen = late.holder()
    holder.confirm(0.0)
    late.place.remove(lease.LOCK, seen)
    assert whose(there) == holder.lease and not holder.lost
    _, seen = late.holder()
    taker.place.remove(lease.LOCK, seen)
    taker.take()
    late.place.remove(lease.LOCK, seen)
    assert whose(there) == taker.lease
    with pytest.raises(Unfinished, match="another process trains in it"):
        holder.confirm(0.0)
    holder.release()
    assert whose(there) == taker.lease
    taker.confirm(0.0)


def test_of_many_one_has_it(there, monkeypatch):
    """All of them wait for one that is silent. Who has it keeps it a while; no two have it at one time."""
    monkeypatch.setattr(lease, "SILENCE", 1.0)
    put(there, host="other")
    now, most, times = [], [], []

    def hold():
        with contextlib.suppress(Missing), one().held():
            now.append(1)
            most.append(len(now))
            time.sleep(0.1)
            now.pop()
            times.append(1)

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert times and set(most) == {1} and not there.names()


def test_it_is_confirmed_while_a_file_is_written(there, monkeypatch):
    """However long that takes."""
    versions = []

    def stall(method, name):
        if method == "POST" and not name and not versions:  # all but locks have their names within
            versions.append(there.objects[LOCK].generation)
            time.sleep(1.0)
            versions.append(there.objects[LOCK].generation)
        return 0

    there.fault = stall
    with mirror.mirrored(RUN) as found, found.held():
        (found.directory / "large").write_text("1")
        found.flush()
    assert versions[1] > versions[0] + 2
