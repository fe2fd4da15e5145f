"""A process that hangs ends and prints its stacks, in Python or C; others continue."""

import signal
import subprocess
import sys
import textwrap

import pytest

DEADLINE = 2  # seconds
# Each is a process that arms `step` and then does something.
STUCK = {
    "in Python": "time.sleep(100)",
    # Matching this regular expression is one call of C code, which holds the GIL until it ends.
    "in C": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "after another": "with g.watch('save'): pass\ntime.sleep(100)",
}
FREE = {"in time": "for _ in range(8): time.sleep(0.5); g.arm('step')"}
FREE |= {"disarmed": "g.arm(''); time.sleep(4)"}


# Runs a command under an init process; in the images, tini does it.
INIT = ["unshare", "--pid", "--fork", "bash", "-c", '"$@"; exit $?', "init"]


def start(scene: str, *init: str):
    program = "import os, re, signal, time\nfrom bert_jax.runs.watchdog import Watchdog\n"
    program += f"with Watchdog({{'step': {DEADLINE}, 'save': 60}}) as g:\n"
    program += "    g.arm('step')\n" + textwrap.indent(scene, "    ")
    command = [*init, sys.executable, "-c", program]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def ended():
    """{name: (code, stderr)}; all run at the same time, since they mostly wait."""
    running = {name: start(scene) for name, scene in (STUCK | FREE).items()}
    errors = {name: process.communicate(timeout=60)[1] for name, process in running.items()}
    return {name: (process.returncode, errors[name]) for name, process in running.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUCK)
def test_a_process_that_hangs_ends_and_prints_its_stacks(ended, name):
    code, errors = ended[name]
    assert code == -signal.SIGALRM and 'File "<string>", line' in errors


@pytest.mark.slow
def test_a_process_that_hangs_ends_under_the_init_process_of_a_container():
    if subprocess.run([*INIT, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no namespaces")
    process = start(STUCK["in Python"], *INIT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGALRM and 'File "<string>", line' in errors


@pytest.mark.full
@pytest.mark.parametrize("before", ["os.write(2, bytes(1 << 16))", "print(1, file=sys.stderr)"])
def test_a_process_that_hangs_ends_if_nobody_reads_its_standard_error(before):
    """The pipe is full, or just not read; and the parent process had ignored the signal."""
    process = start(
        f"import sys\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ng.__enter__()\n{before}\n"
        "g.arm('step')\ntime.sleep(100)"
    )
    assert process.wait(30) == -signal.SIGALRM
    process.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", FREE)
def test_a_process_without_a_missed_deadline_continues(ended, name):
    assert ended[name] == (0, "")
