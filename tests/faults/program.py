"""`bert-jax` with a fault: a variable "KIND:PROCESS:BATCH" says what happens, in which process, before which batch.

raise   an exception
sleep   the thread that trains sleeps for ever
hold    it never gives Python to another thread again
"""

import ctypes
import os
import sys
import time
from pathlib import Path

# Not this directory, whose names are those of modules in `faults`.
sys.path[0] = str(Path(__file__).parents[1])

import processes  # noqa: E402

from bert_jax import __main__ as program  # noqa: E402
from bert_jax import sharding  # noqa: E402

FAULT = "BERT_JAX_TESTS_FAULT"


def fail(kind: str) -> None:
    if kind == "raise":
        raise RuntimeError("the fault of this try")
    if kind == "sleep":
        time.sleep(10_000)
    if kind == "hold":
        ctypes.PyDLL(None).sleep(10_000)


def wrap(kind: str, batch: int) -> None:
    """Lets the fault happen where the batch is given to the devices."""
    to_devices, calls = sharding.to_devices, []

    def failing(*arguments):
        calls.append(None)
        if len(calls) == batch:
            fail(kind)
        return to_devices(*arguments)

    sharding.to_devices = failing


if __name__ == "__main__":
    processes.share_compiled_programs()
    kind, _, place = os.environ.get(FAULT, "").partition(":")
    if kind:
        process, batch = map(int, place.split(":"))
        if process == int(os.environ["JAX_PROCESS_ID"]):
            wrap(kind, batch)
    program.run()
