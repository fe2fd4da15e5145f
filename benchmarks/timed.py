"""Runs a command and measures its wall-clock time, its CPU time and the memory of its largest process."""

import os
import subprocess
import tempfile
import time
from typing import NamedTuple

from bert_jax.errors import BadInput


class Used(NamedTuple):
    """The time and memory that a command used."""

    seconds: float  # of wall-clock time
    cpu_seconds: float  # of the process and of its children
    peak: float  # bytes, of the largest of them; on Linux at least the peak of the calling process


def run(command: list[str], **options) -> Used:
    """Runs a command with the options of subprocess.Popen. Raises BadInput with the last line of output on failure."""
    with tempfile.TemporaryFile("w+") as log:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log, **options)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            lines = log.read().strip().splitlines() or ["no output"]
            raise BadInput(f"{command[0]}: exit code {process.returncode}: {lines[-1]}")
    return Used(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
