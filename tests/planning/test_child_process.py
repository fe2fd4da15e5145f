"""Calls in a process of their own: what they answer, how they end, and that none is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bert_jax.errors import BadInput
from bert_jax.planning import child_process

# Calls something that takes long, and says the number of the process that does.
STARTED = """
import sys
sys.path.insert(0, {here!r})
import test_child_process
from bert_jax.planning import apart
apart.call(test_child_process.tell_and_wait, {told!r})
"""


def crash(number):
    os.kill(os.getpid(), number)


def refuse(text):
    raise BadInput(text)


class Short(Exception):
    """Made of what it does not keep."""

    def __init__(self, used, there):
        super().__init__(f"{used} of {there}")


class Held(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


def fail(kind, *words):
    raise kind(*words)


def talk():
    os.write(1, b"a library\n")
    print("another")
    return 7


def tell_and_wait(path):
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(60)


def test_what_it_returns_and_raises():
    assert child_process.call(max, 3, 5) == 5
    assert child_process.call(os.getpid) != os.getpid()
    with pytest.raises(BadInput) as caught:
        child_process.call(refuse, "a key")
    assert str(caught.value) == "a key"


@pytest.mark.parametrize(
    "arguments, kind, words",
    [
        ((KeyError, "key"), KeyError, "'key'"),
        ((Short, 3, 2), RuntimeError, "Short: 3 of 2"),
        ((Held, "tight"), RuntimeError, "Held: tight"),
    ],
)
def test_errors_arrive_with_where_they_happened(arguments, kind, words):
    with pytest.raises(Exception) as caught:
        child_process.call(fail, *arguments)
    assert type(caught.value) is kind and str(caught.value) == words
    assert ", in fail\n" in caught.value.__notes__[-1]


def test_an_answer_that_cannot_be_sent():
    with pytest.raises(TypeError, match="pickle '_thread.lock' object"):
        child_process.call(threading.Lock)


def test_what_libraries_print_is_not_the_answer(capfd):
    assert child_process.call(talk) == 7
    assert capfd.readouterr() == ("", "")


def test_a_crash_is_told():
    with pytest.raises(child_process.Crashed, match=r"^it crashed \(SIGSEGV\)$"):
        child_process.call(crash, signal.SIGSEGV)
    with pytest.raises(child_process.Crashed, match="^it ended with 3$"):
        child_process.call(os._exit, 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_one_that_started_it(tmp_path, number):
    """At once, by whatever that is ended."""
    told = tmp_path / "told"
    script = STARTED.format(here=str(Path(__file__).parent), told=str(told))
    started = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        assert holds_within(60, lambda: told.exists() and told.read_text().endswith("\n"))
        child = Path(f"/proc/{int(told.read_text())}/cmdline")
        os.kill(started.pid, number)
        assert started.wait(20) == -number
        # Of one that is dead, and that nobody has asked for, the line is empty.
        assert holds_within(20, lambda: not child.exists() or not child.read_bytes())
    finally:
        started.kill()
        started.wait()


def holds_within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()
