"""The lock of a workdir in a bucket: of several processes that want it one has it."""

import contextlib
import json
import math
import threading
import time

import pytest
from kits.waiting import wait_until

from bert_jax.errors import Missing
from bert_jax.runs import lease, workdir
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


def claim(**changes) -> bytes:
    """The lock of a process that has ended on this host, but for the changes."""
    holder = {"lease": "x", "pid": 1 << 30, "born": 1, "time": 0.0} | workdir.here()
    return json.dumps(holder | changes).encode()


def whose(there) -> str:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return json.loads(there.text(LOCK))["lease"]


def in_a_thread(function) -> None:
    threading.Thread(target=function, daemon=True).start()


def test_a_second_process_is_refused(there, monkeypatch):
    monkeypatch.setattr(lease, "SILENCE", 1.0)
    first = one()
    with first.held():
        with pytest.raises(Missing, match=RUN):
            one().take()
        assert whose(there) == first.lease


def test_the_next_start_waits_for_a_process_that_is_about_to_end(there):
    first, second = one(), one()
    first.take()
    in_a_thread(second.take)
    time.sleep(0.5)
    assert whose(there) == first.lease
    first.release()
    wait_until(lambda: whose(there) == second.lease)


@pytest.mark.parametrize("text", [claim(), b"", b"[1]"], ids=["gone", "empty", "damaged"])
def test_a_lock_that_is_nobodys_is_taken(there, monkeypatch, text):
    monkeypatch.setattr(lease, "SILENCE", math.inf)
    there.put(LOCK, text, {})
    taker = one()
    in_a_thread(taker.take)
    wait_until(lambda: whose(there) == taker.lease)


def test_the_lock_of_another_machine_is_taken_once_it_is_silent(there, monkeypatch):
    """Its process numbers mean nothing here."""
    monkeypatch.setattr(lease, "SILENCE", math.inf)
    there.put(LOCK, claim(host="other"), {})
    taker = one()
    in_a_thread(taker.take)
    time.sleep(1.2)  # in which it has looked twice
    assert whose(there) == "x"
    monkeypatch.setattr(lease, "SILENCE", 0.1)
    wait_until(lambda: whose(there) == taker.lease)


def test_no_two_of_many_have_it_at_one_time(there, monkeypatch):
    monkeypatch.setattr(lease, "SILENCE", 1.0)
    there.put(LOCK, claim(host="other"), {})
    holders, most = [], []

    def hold():
        with contextlib.suppress(Missing), one().held():
            holders.append(1)
            most.append(len(holders))
            time.sleep(0.1)
            holders.pop()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1} and not there.names()
