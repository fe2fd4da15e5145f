"""Workdirs at an address, as gs://bucket/run. Checkpoints lie there alone: Orbax writes and reads them there. The small
files lie in a copy on this host while a command runs, and are what they are in any workdir; the process that trains
keeps those at the address as the copy changes, each written whole.

    $XDG_CACHE_HOME/bert_jax/runs/ID/address    whose copy NAME is
    $XDG_CACHE_HOME/bert_jax/runs/ID/NAME/      the copy; gone when the command ends

At the address there is `.lock` instead of a file that is held: who has it, and when that was last said. A holder that
is gone from this host, or has said nothing for SILENCE, has lost it.
"""

import contextlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax import remote, staged, status, workdir
from bert_jax.data.store import inside
from bert_jax.errors import BadInput, Unfinished
from bert_jax.whole import STALE

LOCK = ".lock"
PERIOD = 10.0  # seconds between two looks at what has changed, and two signs of life
SILENCE = 60.0  # seconds of a lock that says nothing, after which it is taken
RATE = 1e5  # bytes a second that a file which grows is worth: a large one is written less often
ELSEWHERE = (workdir.CHECKPOINTS, "traces")  # large, and not needed here


@contextlib.contextmanager
def copied(name: str | Path, *only: str) -> Iterator[Path]:
    """A directory that holds the small files of a workdir, all or `only` these: itself, or the copy of one at an
    address. What is raised within names the address."""
    if not remote.is_address(name):
        yield Path(name)
        return
    with mirrored(name, *only) as mirror:
        yield mirror.directory


@contextlib.contextmanager
def copies(options, keys: tuple, only: tuple = ()) -> Iterator[None]:
    """Puts copies, of all files or `only` these, in the place of the addresses of runs among a command's options."""
    with contextlib.ExitStack() as held:
        for key in keys:
            given = getattr(options, key, None)
            if isinstance(given, list):
                setattr(options, key, [held.enter_context(copied(name, *only)) for name in given])
            elif given:
                setattr(options, key, held.enter_context(copied(given, *only)))
        yield


@contextlib.contextmanager
def mirrored(name: str | Path, *only: str) -> Iterator["Mirror"]:
    """The same for who changes files in it, too."""
    if not remote.is_address(name):
        yield Mirror(Path(name), None)
        return
    place = remote.Place(str(name))
    home = staged.directory(workdir.COPIES)
    remove_stale(home)
    directory = home / uuid.uuid4().hex / place.root.rpartition("/")[2]
    try:
        directory.mkdir(parents=True)
        (directory.parent / workdir.ADDRESS).write_text(place.address)
        with remote.naming(directory, place.address), remote.told(place.address):
            mirror = Mirror(directory, place)
            mirror.fetch(only)
            yield mirror
    finally:
        shutil.rmtree(directory.parent, ignore_errors=True)


def remove_stale(home: Path) -> None:
    """Deletes the copies that killed processes have left."""
    for path in home.iterdir():
        with contextlib.suppress(OSError):
            newest = max(found.stat().st_mtime for found in (path, *path.iterdir()))
            if time.time() - newest > STALE:
                shutil.rmtree(path)


class Mirror:
    """A workdir, and the address that it is to be kept at, if any."""

    def __init__(self, directory: Path, place: remote.Place | None):
        self.directory, self.place = directory, place
        self.known = {}  # {name: stamp} of what lies at the address as it does here
        self.written = {}  # {name: when}, by time.monotonic
        self.lock = threading.RLock()  # of the above
        self.lease = ""  # what our .lock says of us
        self.lost = False

    def fetch(self, only: tuple) -> None:
        """Copies from the address."""
        with remote.reached(self.place.address):
            names = list(only)
            if not only:
                for name, is_directory in self.place.names().items():
                    if name not in ELSEWHERE:
                        names += self.place.tree(name) if is_directory else [name]
            for name in names:
                path = self.directory / name
                hidden = name.startswith(".")
                if hidden or not inside(self.directory, name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    data = self.place.read(name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
                    self.known[name] = stamp(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the address for this process, and keeps it up to date."""
        if not self.place:
            yield
            return
        self.take()
        ended = threading.Event()
        beats = threading.Thread(target=self.beat, args=(ended,), daemon=True)
        beats.start()
        try:
            with self.flushed():
                yield
        finally:
            ended.set()
            beats.join()
            with contextlib.suppress(Exception):
                self.release()

    @contextlib.contextmanager
    def flushed(self) -> Iterator[None]:
        """Brings everything to the address at the end, whatever that is."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong is told
                self.flush()
            raise
        self.flush()

    def flush(self) -> None:
        """Brings everything to the address. Raises Unfinished where that cannot be done."""
        if self.place:
            with remote.reached(self.place.address):
                self.bring(lambda name, size: True)
            if self.lost:
                raise Unfinished(f"{self.place.address}: another process trains in it")

    def after(self, tell: Callable) -> Callable:
        """`tell`, whose last words of a process that ends at once come to the address, too; and the lock goes."""

        def told(*what) -> None:
            tell(*what)
            self.flush()
            with self.lock:
                self.lost = True  # or the thread would say that it is held still
                if self.lease:
                    self.release()

        return told

    def bring(self, is_due: Callable) -> None:
        """Writes the files that have changed, if is_due(name, bytes), and removes those that are gone."""
        with self.lock:
            if self.lost:
                return
            there = dict(self.changing())
            for name, found in there.items():
                path = self.directory / name
                if found != self.known.get(name) and is_due(name, found[0]):
                    with contextlib.suppress(FileNotFoundError):  # replaced, or gone since
                        self.write(name, path)
                        self.known[name], self.written[name] = found, time.monotonic()
            for name in self.known.keys() - there.keys():
                self.place.remove(name)
                del self.known[name]

    def write(self, name: str, path: Path) -> None:
        if path.stat().st_size > remote.PART:
            self.place.upload(path, name)
        else:
            self.place.write(name, path.read_bytes())

    def changing(self) -> Iterator[tuple[str, tuple]]:
        for path in self.directory.rglob("*"):
            name = path.relative_to(self.directory).as_posix()
            with contextlib.suppress(OSError):
                if not path.name.startswith(".") and path.is_file():
                    yield name, stamp(path)

    def beat(self, ended: threading.Event) -> None:
        """In a thread. What cannot be written now is at the next time; a checkpoint waits for it."""
        while not ended.wait(PERIOD):
            with contextlib.suppress(Exception):
                self.renew()
                self.bring(self.is_due)

    def is_due(self, name: str, size: int) -> bool:
        passed = time.monotonic() - self.written.get(name, -STALE)
        return passed >= size / RATE

    # --- The lock -----------------------------------------------------------------------------

    def take(self) -> None:
        """Raises BadInput where another process has the address, and goes on to say so."""
        self.lease, seen, since = uuid.uuid4().hex, None, 0.0
        with remote.reached(self.place.address):
            while not self.place.create(LOCK, self.claim()):
                found = self.holder()
                if found != seen:
                    if seen and found and found["lease"] == seen["lease"]:
                        raise BadInput(self.taken(found))
                    seen, since = found, time.monotonic()
                if found and found["host"] == os.uname().nodename:
                    if status.alive(found["pid"], found["born"]):
                        raise BadInput(self.taken(found))
                    self.place.remove(LOCK)
                elif found is None or time.monotonic() - since > SILENCE:
                    self.place.remove(LOCK)
                else:
                    time.sleep(1)

    def taken(self, found: dict) -> str:
        who = f"process {found['pid']} of {found['host']}"
        return f"--workdir {self.place.address}: another process is training in it ({who})"

    def claim(self) -> bytes:
        pid = os.getpid()
        process = {"pid": pid, "born": workdir.born(pid), "host": os.uname().nodename}
        return json.dumps({"lease": self.lease, **process, "time": time.time()}).encode()

    def holder(self) -> dict | None:
        """Who has the lock; None where that cannot be known."""
        with contextlib.suppress(FileNotFoundError, TypeError, ValueError):
            found = json.loads(self.place.read(LOCK))
            kinds = {"lease": str, "pid": int, "born": int, "host": str}
            if all(type(dict(found).get(key)) is kind for key, kind in kinds.items()):
                return found
        return None

    def renew(self) -> None:
        """Says that this process has the lock still; it may have been taken while the address was out of reach."""
        with self.lock:
            found = self.holder()
            self.lost |= found is not None and found["lease"] != self.lease
            if not self.lost:
                self.place.write(LOCK, self.claim())

    def release(self) -> None:
        found = self.holder()
        if found and found["lease"] == self.lease:
            self.place.remove(LOCK)


def stamp(path: Path) -> tuple:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
