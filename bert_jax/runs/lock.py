"""The lock of a workdir, so that only one process trains in it.

On a disk it is a `flock` on the file `.lock`, which the kernel releases when the process ends. In a bucket, where files
cannot be locked, `.lock` is an object with a nonce, which its holder renews every few seconds. Both name the holder.
"""

import fcntl
import json
import os
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bert_jax.errors import BadInput, Unavailable
from bert_jax.storage import remote

LOCK = ".lock"
EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
RENEWAL = 5.0  # seconds between two renewals of the object
STALE = 60.0  # seconds without a renewal, after which another process may take the lock


@contextmanager
def on_disk(directory: Path):
    """Creates and locks a directory. Raises Unavailable if another process holds the lock."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(directory / LOCK, "a+b", buffering=0))
            try:
                fcntl.flock(file, EXCLUSIVE)
            except BlockingIOError:
                time.sleep(0.2)  # `status` may hold it for a moment
                fcntl.flock(file, EXCLUSIVE)
        except BlockingIOError:
            file.seek(0)
            raise Unavailable(refusal(directory, parse(file.read()))) from None
        except OSError as error:
            raise BadInput(f"--workdir {directory}: cannot be locked ({error.strerror})") from None
        with suppress(OSError):  # a full disk
            file.truncate(0)
            file.write(json.dumps(this_process()).encode())
        yield


def is_free(directory: Path) -> bool:
    """Returns whether a directory has a lock file that no process of this machine holds."""
    try:
        with open(directory / LOCK, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def this_process() -> dict:
    """Returns the pid and host of this process."""
    return {"pid": os.getpid(), "host": os.uname().nodename}


class Lock:
    """The lock object in a bucket. A thread renews it, so that it stays valid while the main thread waits."""

    def __init__(self, bucket: remote.Directory):
        self.bucket = bucket
        self.nonce = uuid.uuid4().hex
        self.count = 0  # of renewals
        self.is_lost = False
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.renew, daemon=True)

    @contextmanager
    def held(self):
        """Holds the lock during the context. Raises Unavailable if another process holds it."""
        with remote.explain(self.bucket.address):
            self.acquire()
        self.thread.start()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Acquires the lock. Raises Unavailable if another process renews it within STALE seconds."""
        start = time.monotonic()
        holder = self.read()
        while holder and time.monotonic() - start < STALE:
            time.sleep(min(RENEWAL, STALE))
            before = holder
            holder = self.read()
            if holder and holder != before:
                raise Unavailable(refusal(self.bucket.address, holder))
        self.write()
        time.sleep(RENEWAL)  # if several processes write it at once, the last one gets the lock
        self.check()

    def read(self) -> dict | None:
        """Reads the object: None if it does not exist, {} if it is not a lock, which any process may overwrite."""
        try:
            return parse(self.bucket.read(LOCK))
        except FileNotFoundError:
            return None

    def write(self) -> None:
        self.count += 1
        values = {
            "nonce": self.nonce,
            "count": self.count,
            **this_process(),
        }
        self.bucket.write(LOCK, json.dumps(values).encode())

    def check(self) -> None:
        """Raises Unavailable if this process has lost the lock, and so may not write to the workdir."""
        holder = self.read() or {}
        self.is_lost |= holder.get("nonce") != self.nonce
        if self.is_lost:
            raise Unavailable(refusal(self.bucket.address, holder))

    def renew(self) -> None:
        """Renews the lock until it is released; after an error, tries again. Runs in a thread."""
        while not self.ended.wait(RENEWAL):
            with suppress(Exception):
                self.check()
                self.write()

    def release(self) -> None:
        """Releases the lock and stops its thread."""
        self.ended.set()
        self.thread.join()
        with suppress(Exception):  # if it cannot be deleted, it becomes stale
            self.check()
            self.is_lost = True
            self.bucket.remove(LOCK)


def parse(data: bytes) -> dict:
    """Parses the content of a lock; {} if it is not a JSON object."""
    with suppress(TypeError, ValueError):
        return dict(json.loads(data))
    return {}


def refusal(name: str | Path, holder: dict) -> str:
    """Returns the message that names the holder of a lock."""
    return (
        f"--workdir {name}: another process is training in it"
        f" (process {holder.get('pid')} of {holder.get('host')})"
    )
