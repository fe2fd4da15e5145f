"""Finding each other: every way in which it can go wrong ends with a reason in every process."""

import threading

import pytest
from kits.processes import free_port

from bert_jax import config
from bert_jax.errors import BadInput, Missing
from bert_jax.parallel import rendezvous
from bert_jax.parallel.rendezvous import Place


def keys(*overrides):
    return config.load("demo", [f"distributed.{override}" for override in overrides]).distributed


def meet_all(places, seconds=5.0):
    """What `meet` raised, or None, for each place; all at once, in threads."""
    results = [None] * len(places)

    def run(number, place):
        try:
            rendezvous.meet(place, {"jax": "1"}, seconds)
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
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "a:1")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("JAX_PROCESS_ID", "2")
    assert rendezvous.find(keys()) == Place("a:1", 3, 2)
    assert rendezvous.find(keys("coordinator=b:2", "process=0")) == Place("b:2", 3, 0)
    assert rendezvous.find(keys("processes=1")) is None


def test_half_a_place_is_refused():
    with pytest.raises(BadInput, match="distributed.process .*JAX_PROCESS_ID"):
        rendezvous.find(keys("coordinator=a:1", "processes=2"))


def test_all_meet_in_any_order_and_the_port_is_free_again():
    everyone = places(5)
    assert meet_all(everyone[::-1]) == meet_all(everyone) == [None] * 5


def test_who_never_comes_is_named_to_all_who_did():
    everyone = places(4)
    errors = meet_all([place for place in everyone if place.process != 2], 1.0)
    assert {type(error) for error in errors} == {Missing} and len(set(map(str, errors))) == 1
    assert everyone[0].address in str(errors[0]) and "missing: 2" in str(errors[0])
