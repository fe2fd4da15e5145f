"""A process written down, so that others find out whether it is still there."""

import contextlib
import os
from pathlib import Path


def process() -> dict:
    """This process: its number, when it began, and where its number means it."""
    pid = os.getpid()
    return {"pid": pid, "born": born(pid), **here()}


def here() -> dict:
    """Where the number of a process means that process: hosts, and containers, may have the same name."""
    boot, space = "", 0
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.stat("/proc/self/ns/pid").st_ino
    return {"host": os.uname().nodename, "boot": boot, "space": space}


def born(pid: int) -> int:
    """When a process began, in ticks since the machine did: another one may get its number. 0 where it has ended, or
    where the system (all but Linux) does not say."""
    try:
        # The second field is a name, in brackets, of any characters.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_gone(values: dict) -> bool:
    """Whether a process is known to have ended, of which `process` was written down: on this machine alone."""
    same = here().items() <= values.items()
    return same and not alive(values["pid"], values["born"])


def alive(pid: int, born_at: int) -> bool:
    """Whether the process is there that had this number when it wrote it down."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return born(pid) == born_at
