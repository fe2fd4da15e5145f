"""Runs `bert-jax` with one fault, which the variable FAULT sets: at the N-th call of a function, a process is killed,
gets a signal, raises an error, or hangs."""

import os
import re
import signal
import subprocess
import sys
import time

from orbax.checkpoint._src.path import atomicity

from bert_jax import __main__ as program
from bert_jax import evaluate, loop, train
from bert_jax.checkpoints import writer
from bert_jax.parallel import mesh as meshes

# PROCESS:PLACE:CALL:WHAT, such as 1:step:4:sleep or all:step:4-6:nan
FAULT = "BERT_JAX_TESTS_FAULT"
PLACES = {
    "open": (train, "open_data"),
    "compile": (train, "build"),
    "restore": (loop.Loop, "restore"),
    "step": (meshes, "to_devices"),
    "save": (writer, "save"),
    # Called four times per save: once for each item, when it gets its final name, and once for all.
    "commit": (atomicity.AtomicRenameTemporaryPath, "finalize"),
    "evaluate": (evaluate, "measure"),
}
assert all(hasattr(*place) for place in PLACES.values())
ERROR = "the error of this test"
STARTED = "the fault of this test"  # printed to stderr when the fault begins


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(1000)


def stop():
    """Stops the process as Ctrl-Z does, for longer than any deadline of these tests."""
    subprocess.Popen(["sh", "-c", f"sleep 30; kill -CONT {os.getpid()}"])
    send(signal.SIGSTOP)


def fail():
    raise RuntimeError(ERROR)


def put_nan(mesh, arrays, *_):
    """Puts NaN into the weights of a batch."""
    arrays["masked_weights"] = arrays["masked_weights"] * float("nan")


WHAT = {
    "kill": lambda *_: send(signal.SIGKILL),
    "stop": lambda *_: stop(),
    "raise": lambda *_: fail(),
    "sleep": lambda *_: time.sleep(1000),
    # A call of C code that never releases Python's global lock.
    "hold": lambda *_: re.match("(a+)+$", "a" * 60 + "b"),
    # The process continues after these.
    "terminate": lambda *_: os.kill(os.getpid(), signal.SIGTERM),
    "nan": put_nan,
}


def install(fault: str) -> None:
    """Wraps the function at which the fault happens, if the fault is for this process."""
    process, place, call, what = fault.split(":")
    if process not in (os.environ["JAX_PROCESS_ID"], "all"):
        return
    first, _, last = call.partition("-")
    module, name = PLACES[place]
    function = getattr(module, name)
    calls = []

    def faulty(*arguments):
        if int(first) <= len(calls) <= int(last or first):
            print(STARTED, file=sys.stderr, flush=True)
            WHAT[what](*arguments)
        calls.append(None)
        return function(*arguments)

    setattr(module, name, faulty)


if __name__ == "__main__":
    fault = os.environ.get(FAULT)
    if fault:
        install(fault)
    program.run()
