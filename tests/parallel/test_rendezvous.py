"""Finding each other: every way in which it can go wrong ends in a line, in every process, in time."""

import json
import socket
import threading
import time

import pytest
from kits.processes import free_port

from bert_jax import config
from bert_jax.errors import BadInput, Missing
from bert_jax.parallel import rendezvous
from bert_jax.parallel.rendezvous import Place

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NODELIST": "node[003-006,9]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}
ABOUT = {"jax": "1"}


def keys(*overrides):
    return config.load("demo", [f"distributed.{override}" for override in overrides]).distributed


def meet_all(places, seconds=5.0, about=(), refuses=BadInput):
    """What `meet` raised of this kind, as text, or None for each place; all at once, in threads."""
    results = [None] * len(places)

    def run(number, place):
        try:
            rendezvous.meet(place, about[number] if about else ABOUT, seconds)
        except refuses as error:
            results[number] = str(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return results


@pytest.fixture
def address():
    return f"localhost:{free_port()}"


def places(address, processes):
    return [Place(address, processes, number) for number in range(processes)]


def test_one_process_looks_for_nobody():
    assert rendezvous.find(keys()) is None
    assert rendezvous.find(keys("processes=1")) is None


def test_config_then_variables(monkeypatch):
    for name, value in zip(VARIABLES, ("a:1", "3", "2"), strict=True):
        monkeypatch.setenv(name, value)
    assert rendezvous.find(keys()) == Place("a:1", 3, 2)
    assert rendezvous.find(keys("coordinator=b:2", "process=0")) == Place("b:2", 3, 0)
    assert rendezvous.find(keys("processes=1")) is None


def test_slurm(monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    port = 4711 % 2**12 + 65536 - 2**12
    assert rendezvous.find(keys()) == Place(f"node003:{port}", 4, 2, "slurm")
    monkeypatch.setenv("JAX_COORDINATOR_PORT", "1234")
    assert rendezvous.find(keys()).address == "node003:1234"
    assert rendezvous.find(keys("processes=1")) is None
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert rendezvous.find(keys()) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_NTASKS", "-1"),
        ("SLURM_NTASKS", "0"),
        ("SLURM_PROCID", "x"),
        ("SLURM_PROCID", "4"),
        ("SLURM_LOCALID", "x"),
        ("SLURM_JOB_ID", "abc"),
        ("SLURM_STEP_NODELIST", ""),
    ],
)
def test_what_slurm_may_not_say(monkeypatch, name, value):
    for key, usual in (SLURM | {name: value}).items():
        monkeypatch.setenv(key, usual)
    with pytest.raises(BadInput) as caught:
        rendezvous.find(keys())
    assert str(caught.value).startswith("slurm: ") and f"{name}={value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["coordinator=a:1", "processes=2"], "config.distributed.process (or JAX_PROCESS_ID): missing"),
        (["process=1"], "config.distributed.coordinator (or JAX_COORDINATOR_ADDRESS): missing"),
        (["coordinator=a:1", "process=0"], "config.distributed.processes (or JAX_NUM_PROC"),
        (["coordinator=a:1", "processes=2", "process=2"], "process=2: expected 0 to 1 of 2 pro"),
        (["coordinator=a", "processes=2", "process=0"], "coordinator=a: expected HOST:PORT"),
        (["coordinator=a:99999", "processes=2", "process=0"], "coordinator=a:99999: expected"),
    ],
)  # fmt: skip
def test_half_a_place_is_refused(overrides, line):
    with pytest.raises(BadInput) as caught:
        rendezvous.find(keys(*overrides))
    assert line in str(caught.value)


def test_a_variable_that_is_no_number(monkeypatch):
    monkeypatch.setenv("JAX_PROCESS_ID", "two")
    with pytest.raises(BadInput, match="JAX_PROCESS_ID=two: expected a whole number"):
        rendezvous.find(keys())
    monkeypatch.delenv("JAX_PROCESS_ID")
    for key, usual in (SLURM | {"JAX_COORDINATOR_PORT": "abc"}).items():
        monkeypatch.setenv(key, usual)
    with pytest.raises(BadInput, match="^JAX_COORDINATOR_PORT=abc: expected a whole number"):
        rendezvous.find(keys())
    monkeypatch.delenv("JAX_COORDINATOR_PORT")
    with pytest.raises(BadInput, match="^config.distributed.coordinator=foo: expected HOST:PORT"):
        rendezvous.find(keys("coordinator=foo"))


def test_all_meet_in_any_order_and_the_port_is_free_again(address):
    assert meet_all(places(address, 5)[::-1]) == [None] * 5
    assert meet_all(places(address, 5)) == [None] * 5


def test_strangers_at_the_port_do_no_harm(address):
    """A health probe that says nothing, and one that speaks HTTP."""
    host, _, port = address.rpartition(":")
    hello = json.dumps({"process": 1, "processes": 2} | ABOUT).encode() + b"\n"
    results = []
    thread = threading.Thread(target=lambda: results.append(meet_all(places(address, 2)[:1], 20)))
    thread.start()
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"", hello):
        for _ in range(100):
            try:
                stranger = socket.create_connection((host, int(port)))
                break
            except OSError:
                time.sleep(0.05)
        with stranger:
            stranger.sendall(words)
            if words == hello:
                assert rendezvous.read(stranger, time.monotonic() + 10) == rendezvous.GO
    thread.join()
    assert results == [[None]]


def test_who_never_comes_is_named_to_all_who_did(address):
    started = time.monotonic()
    lines = meet_all(
        [place for place in places(address, 4) if place.process != 2], 1.0, refuses=Missing
    )
    assert time.monotonic() - started < 20
    assert len(set(lines)) == 1
    assert address in lines[0] and "3 of 4 processes" in lines[0] and "missing: 2" in lines[0]


def test_without_process_0_the_others_give_up(address):
    lines = meet_all(places(address, 3)[1:], 1.0, refuses=Missing)
    assert all(f"coordinator={address}: process {n} of 3 did not" in lines[n - 1] for n in (1, 2))


def test_a_host_that_does_not_exist():
    (line,) = meet_all([Place("no-such-host.invalid:1234", 2, 1)], 0.5, refuses=Missing)
    assert "no-such-host.invalid:1234: process 1 of 2 did not reach process 0 within" in line


@pytest.mark.parametrize("twice", [0, 1])
def test_a_number_given_twice(address, twice):
    both = [Place(address, 3, 0), Place(address, 3, 1), Place(address, 3, twice)]
    lines = meet_all(both, 2.0, refuses=(BadInput, Missing))
    if twice:
        assert set(lines) == {"config.distributed.process=1: two processes have this number"}
    else:
        assert all(lines)
        assert any("process 0 cannot listen there (Address already in use)" in s for s in lines)


def test_another_number_of_processes(address):
    lines = meet_all([Place(address, 2, 0), Place(address, 3, 1)])
    assert set(lines) == {"config.distributed.processes: 2 in process 0, 3 in process 1"}


def test_another_version(address):
    lines = meet_all(places(address, 2), about=({"jax": "0.10"}, {"jax": "0.11"}))
    assert set(lines) == {"jax: 0.10 in process 0, 0.11 in process 1"}


def test_who_gives_up_meanwhile_is_missing(address):
    """Process 1 comes and goes again before process 2 is there."""
    lines, first = [], places(address, 3)[:1]
    thread = threading.Thread(target=lambda: lines.extend(meet_all(first, 2.0, refuses=Missing)))
    thread.start()
    time.sleep(0.3)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as impatient:
        impatient.sendall(rendezvous.encode({"process": 1, "processes": 3} | ABOUT))
        time.sleep(0.2)
    lines += meet_all(places(address, 3)[2:], 2.0, refuses=Missing)
    thread.join()
    assert all("2 of 3 processes came" in line and "missing: 1" in line for line in lines)
