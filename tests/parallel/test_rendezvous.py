"""Finding each other: every way in which it can go wrong ends with a reason in every process."""

import socket
import threading

import pytest
from kits.processes import free_port
from kits.waiting import wait_until

from bert_jax import config
from bert_jax.errors import BadInput, Missing
from bert_jax.parallel import rendezvous
from bert_jax.parallel.rendezvous import Place

VARIABLES = {
    "JAX_COORDINATOR_ADDRESS": "a:1",
    "JAX_NUM_PROCESSES": "3",
    "JAX_PROCESS_ID": "2",
}
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


def set_all(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def meet_all(places, seconds=5.0, about=()):
    """What `meet` raised, or None, for each place; all at once, in threads."""
    results = [None] * len(places)

    def run(number, place):
        try:
            rendezvous.meet(place, about[number] if about else ABOUT, seconds)
        except (BadInput, Missing) as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def places(processes):
    address = f"localhost:{free_port()}"
    return [Place(address, processes, number) for number in range(processes)]


def test_the_config_comes_before_variables(monkeypatch):
    assert rendezvous.find(keys()) is None
    set_all(monkeypatch, VARIABLES)
    assert rendezvous.find(keys()) == Place("a:1", 3, 2)
    assert rendezvous.find(keys("coordinator=b:2", "process=0")) == Place("b:2", 3, 0)
    assert rendezvous.find(keys("processes=1")) is None


def test_slurm(monkeypatch):
    set_all(monkeypatch, SLURM)
    port = 4711 % 2**12 + 65536 - 2**12
    assert rendezvous.find(keys()) == Place(f"node003:{port}", 4, 2, "slurm")
    monkeypatch.setenv("JAX_COORDINATOR_PORT", "1234")
    assert rendezvous.find(keys()).address == "node003:1234"
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert rendezvous.find(keys()) is None


@pytest.mark.parametrize(
    "name, value",
    [
        ("SLURM_NTASKS", "0"),
        ("SLURM_PROCID", "x"),
        ("SLURM_PROCID", "4"),
        ("SLURM_JOB_ID", "abc"),
        ("SLURM_STEP_NODELIST", ""),
        ("JAX_COORDINATOR_PORT", "abc"),
        ("JAX_PROCESS_ID", "two"),
    ],
)
def test_a_variable_that_cannot_be_is_named(monkeypatch, name, value):
    set_all(monkeypatch, SLURM | {name: value})
    with pytest.raises(BadInput, match=f"{name}='?{value}"):
        rendezvous.find(keys())


@pytest.mark.parametrize(
    "overrides, named",
    [
        ("coordinator=a:1 processes=2", "distributed.process .*JAX_PROCESS_ID"),
        ("process=1", "distributed.coordinator .*JAX_COORDINATOR_ADDRESS"),
        ("coordinator=a:1 process=0", "distributed.processes .*JAX_NUM_PROCESSES"),
        ("coordinator=a:1 processes=2 process=2", "distributed.process=2"),
        ("coordinator=a processes=2 process=0", "distributed.coordinator=a"),
        ("coordinator=a:99999 processes=2 process=0", "distributed.coordinator=a:99999"),
    ],
)
def test_half_a_place_is_refused(overrides, named):
    with pytest.raises(BadInput, match=named):
        rendezvous.find(keys(*overrides.split()))


def test_all_meet_in_any_order_and_the_port_is_free_again():
    everyone = places(5)
    assert meet_all(everyone[::-1]) == meet_all(everyone) == [None] * 5


def test_strangers_at_the_port_do_no_harm():
    """A health probe that says nothing, and one that speaks HTTP."""
    first, second = places(2)
    host, _, port = first.address.rpartition(":")
    results = []
    thread = threading.Thread(target=lambda: results.extend(meet_all([first], 60)))
    thread.start()

    def connected():
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            return None

    for words in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b""):
        with wait_until(connected) as stranger:
            stranger.sendall(words)
    results += meet_all([second], 60)
    thread.join()
    assert results == [None, None]


def test_who_never_comes_is_named_to_all_who_did():
    everyone = places(4)
    errors = meet_all([place for place in everyone if place.process != 2], 1.0)
    assert {type(error) for error in errors} == {Missing} and len(set(map(str, errors))) == 1
    assert everyone[0].address in str(errors[0]) and "missing: 2" in str(errors[0])


def test_without_process_0_the_others_give_up():
    others = places(3)[1:]
    others[0] = others[0]._replace(address="no-such-host.invalid:1234")
    for place, error in zip(others, meet_all(others, 0.5), strict=True):
        assert isinstance(error, Missing)
        assert f"{place.address}: process {place.process}" in str(error)


def test_a_number_given_twice():
    everyone = places(3)
    errors = meet_all([everyone[0], everyone[1], everyone[1]], 2.0)
    assert all(isinstance(error, BadInput) for error in errors)
    assert {str(error).partition(":")[0] for error in errors} == {"config.distributed.process=1"}
    errors = meet_all([everyone[0], everyone[1], everyone[0]], 2.0)
    assert all(errors) and any(everyone[0].address in str(error) for error in errors)


def test_another_number_of_processes_or_version():
    two = places(2)
    for error in meet_all([two[0], two[1]._replace(processes=3)]):
        assert isinstance(error, BadInput) and "config.distributed.processes: 2" in str(error)
    for error in meet_all(places(2), about=({"jax": "0.10"}, {"jax": "0.11"})):
        assert isinstance(error, BadInput) and "jax: 0.10" in str(error)
