"""Real processes on this machine that make one run: starting and ending them, and what each of them said."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax

PROGRAM = Path(__file__).with_name("stuck.py")  # bert-jax; by a variable something happens to it
DEADLINE = 600  # seconds for all of a run's processes, which may share two cores with others


class Ended(NamedTuple):
    code: int
    output: str
    errors: str


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


def cache() -> dict:
    """Variables that give a process the tests' own compilation cache."""
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def environment(devices: int, **variables) -> dict:
    """The variables of a process with simulated devices."""
    simulated = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    return os.environ | simulated | cache() | variables


@contextlib.contextmanager
def started(arguments, directory: Path, processes: int, devices, changes=None, **variables):
    """[Popen], told by variables where they meet; none is left at the end. Their words go to files.

    devices: how many each has, or a list of how many. changes: {process: more arguments}.
    """
    devices = devices if isinstance(devices, list) else [devices] * processes
    directory.mkdir(parents=True, exist_ok=True)
    place = {
        "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
        "JAX_NUM_PROCESSES": str(processes),
    }
    running = []
    try:
        for number in range(processes):
            more = (changes or {}).get(number, ())
            command = [sys.executable, str(PROGRAM), *arguments, *more]
            variables |= place | {"JAX_PROCESS_ID": str(number)}
            settings = environment(devices[number], **variables)
            said = (directory / f"{name}{number}" for name in ("output", "errors"))
            with open(next(said), "w") as out, open(next(said), "w") as err:
                running.append(subprocess.Popen(command, stdout=out, stderr=err, env=settings))
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def wait(running, directory: Path, seconds: float = DEADLINE) -> list[Ended]:
    """What became of all of them; raises TimeoutExpired, with what they said."""
    deadline = time.monotonic() + seconds
    ended = []
    for number, process in enumerate(running):
        said = [directory / f"{name}{number}" for name in ("output", "errors")]
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            error.add_note(f"process {number}: {said[0].read_text()} {said[1].read_text()}")
            raise
        ended.append(Ended(process.returncode, *(path.read_text() for path in said)))
    return ended


def run(arguments, directory: Path, processes: int, devices, changes=None, **variables):
    with started(arguments, directory, processes, devices, changes, **variables) as running:
        return wait(running, directory)
