"""A process that is stuck ends with its stacks, whatever it is stuck in; one that goes on does not."""

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
    "after another": "with g.watch('save'): pass\ntime.sleep(100)",
}
FREE = {
    "in time": "for _ in range(8): time.sleep(0.5); g.arm('step')",
    "disarmed": "g.arm(''); time.sleep(4)",
}


# Runs its arguments as an init does, in a process of their own; tini does it in the images.
INIT = ["unshare", "--pid", "--fork", "bash", "-c", '"$@"; exit $?', "init"]


def start(scene: str, *init: str):
    program = "import os, re, signal, time\nfrom bert_jax.runs.watchdog import Watchdog\n"
    program += f"with Watchdog({{'step': {DEADLINE}, 'save': 60}}) as g:\n"
    program += "    g.arm('step')\n" + textwrap.indent(scene, "    ")
    return subprocess.Popen(
        [*init, sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def ended():
    """{name: (code, stderr)} of all at once: most of their time they wait."""
    running = {name: start(scene) for name, scene in (STUCK | FREE).items()}
    errors = {name: process.communicate(timeout=60)[1] for name, process in running.items()}
    return {name: (process.returncode, errors[name]) for name, process in running.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_process_ends_and_leaves_its_stacks(ended, name):
    code, errors = ended[name]
    assert code == -signal.SIGALRM and 'File "<string>", line' in errors


@pytest.mark.slow
def test_under_the_init_of_a_container_it_ends_too():
    if subprocess.run([*INIT, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no namespaces")
    process = start(STUCK["in Python"], *INIT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGALRM and 'File "<string>", line' in errors


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("before", ["os.write(2, bytes(1 << 16))", "print(1, file=sys.stderr)"])
def test_a_reader_that_is_gone_or_asleep_keeps_nobody(before):
    """Of a pipe that is full, nothing is read; the signal was ignored by who started the process."""
    process = start(
        f"import sys\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ng.__enter__()\n{before}\n"
        "g.arm('step')\ntime.sleep(100)"
    )
    assert process.wait(30) == -signal.SIGALRM
    process.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", FREE)
def test_a_process_that_goes_on_is_left_alone(ended, name):
    assert ended[name] == (0, "")
