"""Commands in a thread or a notebook handle no signals, and have no deadline that would end the process."""

import builtins
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from kits.runs import pretraining

from bert_jax.cli import main
from bert_jax.parallel.cluster import Cluster
from bert_jax.runs import signals
from bert_jax.runs.watchdog import Watchdog
from bert_jax.storage import atomic

NUMBERS = signal.SIGTERM, signal.SIGINT, signal.SIGALRM


def handlers() -> list:
    return [signal.getsignal(number) for number in NUMBERS]


def handlers_of_a_run() -> list:
    with Watchdog({"step": 100}) as watchdog, signals.stop_signals(Cluster()), atomic.terminable():
        watchdog.arm("step")
        return [*handlers(), signal.getitimer(signal.ITIMER_REAL)]


@pytest.mark.parametrize("place", ["thread", "notebook"])
def test_signals_are_those_of_the_process(monkeypatch, place):
    signal.alarm(1000)  # of the process
    expected = handlers()
    if place == "notebook":
        monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
        *found, (left, _) = handlers_of_a_run()
    else:
        *found, (left, _) = ThreadPoolExecutor(1).submit(handlers_of_a_run).result()
    assert signal.alarm(0) > 900
    assert found == expected and left > 900


def test_commands_run_in_a_thread(finished, tmp_path):
    settings, workdir = finished
    exporting = "export", "--model", str(workdir), "--output", str(tmp_path / "out")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(main, pretraining(settings, workdir)).result() == 0
        assert thread.submit(main, exporting).result() == 0
