"""A process that is stuck is ended with its stacks, whatever it is stuck in; one that goes on is not."""

import signal
import subprocess
import sys
import textwrap

import pytest

DEADLINE = 2  # seconds
# Each is a process that arms `step` and then does something.
STUCK = {
    "in Python": "time.sleep(100)",
    # One match of a regular expression is one call of C, which keeps Python's lock to the end.
    "in C": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(100)",
    "after another": "with g.watch('save'): pass\ntime.sleep(100)",
}
FREE = {
    "in time": "for _ in range(8): time.sleep(0.5); g.arm('step')",
    "disarmed": "g.arm(''); time.sleep(4)",
}


def start(scene: str):
    program = "import os, re, signal, time\nfrom bert_jax.runs.watchdog import Guardian\n"
    program += f"with Guardian({{'step': {DEADLINE}, 'save': 60}}, 'process 7') as g:\n"
    program += "    g.arm('step')\n" + textwrap.indent(scene, "    ")
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def ended():
    """{name: (code, stderr)} of all at once: most of their time they wait."""
    running = {name: start(scene) for name, scene in (STUCK | FREE).items()}
    errors = {name: process.communicate(timeout=60)[1] for name, process in running.items()}
    return {name: (process.returncode, errors[name]) for name, process in running.items()}


@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_process_is_killed_and_leaves_its_stacks(ended, name):
    code, errors = ended[name]
    assert code == -signal.SIGKILL
    assert "config.deadlines.step" in errors and 'File "<string>", line' in errors


@pytest.mark.parametrize("name", FREE)
def test_a_process_that_goes_on_is_left_alone(ended, name):
    assert ended[name] == (0, "")
