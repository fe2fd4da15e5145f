"""What ends a process that is stuck, whatever it is stuck in, and what does not."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bert_jax.runs import watchdog

DEADLINE = 2  # seconds
# Each is a process that arms `step` and then does something.
STUCK = {
    "in_python": "time.sleep(100)",
    # One match of a regular expression is one call of C, which keeps Python's lock to the end.
    "in_c": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(100)",
    "deaf": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(100)",
    "under_another": "with g.watch('save'): time.sleep(100)",
    "after_another": "\n".join(["with g.watch('evaluate'): pass", "time.sleep(100)"]),
    # What writes to a pipe that nobody empties.
    "unread": "os.write(2, bytes(1 << 20))",
}
FREE = {
    "in_time": "for _ in range(8): time.sleep(0.5); g.arm('step')",
    "without": "g.arm('compile'); time.sleep(4)",
    "disarmed": "g.arm(''); time.sleep(4)",
    # More than a pipe holds.
    "unguarded": "g.child.send_signal(signal.SIGSTOP)\nfor _ in range(5000): g.arm('step')",
    "alone": "g.child.kill(); g.child.wait()\nfor _ in range(3): g.arm('step')",
    "signalled": "[g.child.send_signal(n) for n in (1, 2, 15)]; time.sleep(1); assert g.child.poll() is None",
}


def start(scene: str, **options):
    program = "import os, re, signal, sys, time\nfrom bert_jax.runs.watchdog import Guardian\n"
    deadlines = {"step": DEADLINE, "save": DEADLINE + 1, "evaluate": 60, "compile": 0}
    program += f"with Guardian({deadlines}, 'process 7') as g:\n    g.arm('step')\n"
    program += "    print(g.child.pid, flush=True)\n" + textwrap.indent(scene, "    ")
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


@pytest.fixture(scope="module")
def ended():
    """{name: (code, stderr, seconds)} of all at once: most of their time they wait."""
    started = time.monotonic()
    running = {name: start(scene) for name, scene in (STUCK | FREE).items()}
    found = {}
    for name, process in running.items():
        if name == "unread":
            process.wait(60)
        errors = process.communicate(timeout=60)[1].decode(errors="replace")
        found[name] = process.returncode, errors, time.monotonic() - started
    return found


@pytest.mark.parametrize("name", STUCK)
def test_what_is_stuck_is_killed(ended, name):
    code, errors, seconds = ended[name]
    assert code == -signal.SIGKILL, errors
    assert seconds > DEADLINE
    if name == "unread":
        return
    key, limit = ("save", DEADLINE + 1) if name == "under_another" else ("step", DEADLINE)
    doing = watchdog.DOING[key]
    assert (
        f"bert-jax: process 7: {doing} took longer than {limit} s (config.deadlines.{key})"
        in errors
    )
    assert re.search(r'File "<string>", line \d+ in <module>', errors), "no stack"


@pytest.mark.parametrize("name", FREE)
def test_what_goes_on_is_not(ended, name):
    code, errors, _ = ended[name]
    said = "bert-jax: the process that keeps deadlines is gone\n" if name == "alone" else ""
    assert (code, errors) == (0, said)


def test_a_whole_job_that_is_stopped_is_not_late():
    """As by Ctrl-Z."""
    process = start("time.sleep(1.5)", start_new_session=True)
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(DEADLINE + 1)
    os.killpg(process.pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


def test_it_ends_with_the_process():
    process = start("time.sleep(100)")
    child = int(process.stdout.readline())
    assert Path(f"/proc/{child}").exists()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def alive(pid: int) -> bool:
    """Not gone, nor waiting for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
