"""One trainer a workdir: two would undo each other's work.

On a disk it holds the file `.lock`, which the kernel frees when the process ends. At an address, where no file can be
held, `.lock` is an object with a nonce that its holder writes again every few seconds. Either says who holds it.
"""

import contextlib
import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput, Missing
from bert_jax.storage import remote

LOCK = ".lock"
ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB
RENEWAL = 5.0  # seconds between two writings of the object
SOON = 0.2  # seconds after which a lock that is held is asked for again
STALE = 60.0  # seconds of an object that does not change, after which it is taken


@contextlib.contextmanager
def on_disk(directory: Path) -> Iterator[None]:
    """Makes the directory and holds it for this process. Raises Missing where another one does."""
    with contextlib.ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(directory / LOCK, "a+b", buffering=0))
            try:
                fcntl.flock(file, ALONE)
            except BlockingIOError:
                time.sleep(SOON)  # by `status`, which asks for a moment
                fcntl.flock(file, ALONE)
        except BlockingIOError:
            file.seek(0)
            raise Missing(refusal(directory, parsed(file.read()))) from None
        except OSError as error:
            raise BadInput(f"--workdir {directory}: cannot be locked ({error.strerror})") from None
        with contextlib.suppress(OSError):  # a full disk
            file.truncate(0)
            file.write(json.dumps(this_process()).encode())
        yield


def is_free(directory: Path) -> bool:
    """Whether no process of this machine holds a directory that one has held."""
    try:
        with open(directory / LOCK, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def this_process() -> dict:
    return {"pid": os.getpid(), "host": os.uname().nodename}


class Lock:
    """The object at an address, for this process. A thread renews it, whatever the others wait for."""

    def __init__(self, place: remote.Place):
        self.place, self.nonce, self.count = place, uuid.uuid4().hex, 0
        self.ended, self.is_lost = threading.Event(), False
        self.thread = threading.Thread(target=self.renew, daemon=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with remote.reached(self.place.address):
            self.take()
        self.thread.start()
        try:
            yield
        finally:
            self.release()

    def take(self) -> None:
        """Raises Missing where another process holds it: one whose object changes while we look."""
        start, before = time.monotonic(), self.read()
        while before and time.monotonic() - start < STALE:
            time.sleep(min(RENEWAL, STALE))
            now = self.read()
            if now and now != before:
                raise Missing(refusal(self.place.address, now))
            before = now
        self.write()
        time.sleep(RENEWAL)  # others may take it in the same moment; the last to write has it
        self.check()

    def read(self) -> dict | None:
        """Reads the object: None where there is none, {} where it is no lock, which any process may take."""
        try:
            return parsed(self.place.read(LOCK))
        except FileNotFoundError:
            return None

    def write(self) -> None:
        self.count += 1
        values = {"nonce": self.nonce, "count": self.count, **this_process()}
        self.place.write(LOCK, json.dumps(values).encode())

    def check(self) -> None:
        """Raises Missing where this process holds it no longer: nothing may be written then."""
        found = self.read() or {}
        self.is_lost |= found.get("nonce") != self.nonce
        if self.is_lost:
            raise Missing(refusal(self.place.address, found))

    def renew(self) -> None:
        """In a thread. What cannot be written now is the next time."""
        while not self.ended.wait(RENEWAL):
            with contextlib.suppress(Exception):
                self.check()
                self.write()

    def release(self) -> None:
        """From here on this process holds it no longer."""
        self.ended.set()
        self.thread.join()
        with contextlib.suppress(Exception):  # another takes it when it is stale
            self.check()
            self.is_lost = True
            self.place.remove(LOCK)


def parsed(data: bytes) -> dict:
    with contextlib.suppress(TypeError, ValueError):
        return dict(json.loads(data))
    return {}


def refusal(name: str | Path, holder: dict) -> str:
    who = f"process {holder.get('pid')} of {holder.get('host')}"
    return f"--workdir {name}: another process is training in it ({who})"
