"""Real processes on this machine that form one run: starts and ends them, and collects their output."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax

PROGRAM = Path(__file__).with_name("faulty_program.py")
DEADLINE = 600  # seconds for all processes of a run, which may share two cores with others


class Ended(NamedTuple):
    code: int
    output: str
    errors: str


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


def cache() -> dict:
    """Returns the variables that make a process use the compilation cache of the tests."""
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def environment(devices: int, **variables) -> dict:
    """Returns the variables of a process with simulated devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return os.environ | {"XLA_FLAGS": flags} | cache() | variables


@contextlib.contextmanager
def started(arguments, directory: Path, processes: int, devices, changes=None, **variables):
    """Starts processes that form one run, and kills them at the end; yields [Popen]. Their output goes to files.

    devices: the number of each process, or a list of numbers. changes: {process: more arguments}.
    """
    devices = devices if isinstance(devices, list) else [devices] * processes
    directory.mkdir(parents=True, exist_ok=True)
    rendezvous = {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}"}
    rendezvous |= {"JAX_NUM_PROCESSES": str(processes)}
    running = []
    try:
        for number in range(processes):
            added = (changes or {}).get(number, ())
            command = [sys.executable, str(PROGRAM), *arguments, *added]
            variables |= rendezvous | {"JAX_PROCESS_ID": str(number)}
            settings = environment(devices[number], **variables)
            files = (directory / f"{name}{number}" for name in ("output", "errors"))
            with open(next(files), "w") as out, open(next(files), "w") as err:
                running.append(subprocess.Popen(command, stdout=out, stderr=err, env=settings))
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def wait(running, directory: Path, seconds: float = DEADLINE) -> list[Ended]:
    """Waits for all processes; returns how they ended. Raises TimeoutExpired with their output."""
    deadline = time.monotonic() + seconds
    ended = []
    for number, process in enumerate(running):
        files = [directory / f"{name}{number}" for name in ("output", "errors")]
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            error.add_note(f"process {number}: {files[0].read_text()} {files[1].read_text()}")
            raise
        ended.append(Ended(process.returncode, *(path.read_text() for path in files)))
    return ended


def run(arguments, directory: Path, processes: int, devices, changes=None, **variables):
    with started(arguments, directory, processes, devices, changes, **variables) as running:
        return wait(running, directory)
