"""A command as others start it: seconds by the clock and of processors, and the memory of its largest process."""

import os
import subprocess
import tempfile
import time
from typing import NamedTuple

from bert_jax.errors import BadInput


class Used(NamedTuple):
    seconds: float  # by the clock
    processors: float  # seconds, of the process and of those that it has waited for
    peak: float  # bytes, of the largest of them; Linux tells no less than this process has had


def run(command: list[str]) -> Used:
    """Raises BadInput with its last line where it fails."""
    with tempfile.TemporaryFile("w+") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            said = log.read().strip().splitlines() or ["no word"]
            raise BadInput(f"{command[0]}: exit code {process.returncode}: {said[-1]}")
    return Used(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
