"""Calls in a process of their own: what they answer, how they end, and that none is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kits.waiting import wait_until

from bert_jax.errors import BadInput
from bert_jax.planning import child_process

# A process that calls something long.
PARENT = """
import sys
sys.path.insert(0, {here!r})
import test_child_process
from bert_jax.planning import child_process
child_process.call(test_child_process.write_own_id_and_wait, {path!r})
"""


def fail(kind, text):
    raise kind(text)


def kill_itself(number):
    os.kill(os.getpid(), number)


def print_and_return(value):
    os.write(1, b"a library\n")
    print("another")
    return value


def write_own_id_and_wait(path):
    Path(path).write_text(f"{os.getpid()}\n")
    time.sleep(60)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""  # as of a zombie
    except OSError:
        return False


def test_a_call_returns_its_value_from_another_process(capfd):
    assert child_process.call(print_and_return, 7) == 7
    assert capfd.readouterr() == ("", "")
    assert child_process.call(os.getpid) != os.getpid()


def test_an_error_arrives_with_the_place_where_it_happened():
    with pytest.raises(BadInput, match="a key") as caught:
        child_process.call(fail, BadInput, "a key")
    assert ", in fail\n" in caught.value.__notes__[-1]


def test_a_crash_is_an_error_of_its_own():
    with pytest.raises(child_process.Crashed, match="SIGSEGV"):
        child_process.call(kill_itself, signal.SIGSEGV)
    with pytest.raises(child_process.Crashed, match="3"):
        child_process.call(os._exit, 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_its_parent(tmp_path, number):
    path = tmp_path / "id"
    script = PARENT.format(here=str(Path(__file__).parent), path=str(path))
    parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        child = int(path.read_text())
        assert is_running(child)
        parent.send_signal(number)
        assert parent.wait(20) == -number
        wait_until(lambda: not is_running(child))
    finally:
        parent.kill()
        parent.wait()
