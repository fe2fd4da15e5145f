"""Workdirs at an address, as gs://bucket/run. Checkpoints lie there alone: Orbax writes and reads them there. The small
files lie in a copy on this host while a command runs, and are what they are in any workdir; the process that trains
keeps those at the address as the copy changes, each written whole. That a file is not in the copy says nothing: who
deletes one says so (`remove`).

    $XDG_CACHE_HOME/bert_jax/runs/ID/address    whose copy NAME is; held by the process that has made it
    $XDG_CACHE_HOME/bert_jax/runs/ID/NAME/      the copy; gone when the command ends

At the address there is `.lock` instead of a file that is held (lease.py).
"""

import contextlib
import fcntl
import math
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.data import download
from bert_jax.errors import BadInput, Missing, Unfinished
from bert_jax.runs import workdir
from bert_jax.runs.lease import SILENCE, Lease
from bert_jax.storage import remote
from bert_jax.storage.checksums import inside

PERIOD = 10.0  # seconds between two looks at what has changed
RATE = 1e5  # bytes a second that a file which grows is worth: a large one is written less often
TRACES = "traces"
# Large, or of others, and not needed here; a store is copied by itself.
ELSEWHERE = (workdir.CHECKPOINTS, TRACES, "logs", "store")
DECIDING = ("config.json", "run.json", "summary.json")  # what a start goes by


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
    with made(place) as directory:
        with remote.naming(directory, place.address), remote.told(place.address):
            mirror = Mirror(directory, place)
            mirror.fetch(only)
            yield mirror


@contextlib.contextmanager
def made(place: remote.Place) -> Iterator[Path]:
    """A directory for the copy, until the end."""
    home = download.directory(workdir.COPIES)
    directory = home / uuid.uuid4().hex / place.root.rpartition("/")[2]
    with contextlib.ExitStack() as held:
        with download.alone(home):  # or another command might find it before it is held
            remove_left(home)
            directory.mkdir(parents=True)
            held.callback(shutil.rmtree, directory.parent, ignore_errors=True)
            file = held.enter_context(open(directory.parent / workdir.ADDRESS, "w"))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(place.address)
            file.flush()
        yield directory


def remove_left(home: Path) -> None:
    """Deletes the copies of processes that are gone: nobody holds them."""
    for path in home.iterdir():
        with contextlib.suppress(OSError), open(path / workdir.ADDRESS, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)


class Mirror:
    """A workdir, and the address that it is to be kept at, if any."""

    def __init__(self, directory: Path, place: remote.Place | None):
        self.directory, self.place = directory, place
        self.known = {}  # {name: stamp} of what lies at the address as it does here
        self.written = {}  # {name: when}, by time.monotonic
        self.lock = threading.RLock()  # of the above
        self.lease = None  # of the address, where this process holds it

    def fetch(self, only: tuple = ()) -> None:
        """Copies from the address, all or `only` these. What is known and no longer there goes here, too. For `only`
        some somebody waits, as in `status`, and not for long."""
        with remote.reached(self.place.address):
            names = list(only)
            if not only:
                there = self.place.names()
                if "run.json" not in there:  # what is none of ours is neither copied nor changed
                    check_names(self.place.address, there)
                for name, is_directory in there.items():
                    if name not in ELSEWHERE:
                        names += self.place.tree(name) if is_directory else [name]
            for name in self.known.keys() - set(names):
                (self.directory / name).unlink(missing_ok=True)
                del self.known[name]
            for name in names:
                path = self.directory / name
                hidden = name.startswith(".")
                if hidden or not inside(self.directory, name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    data = self.place.read(name, remote.PATIENCE if only else 0)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
                    self.known[name] = stamp(path)

    def refresh(self) -> None:
        """Copies again, once the address is ours. Raises Missing where another process has changed meanwhile what this
        start goes by."""
        before = self.deciding()
        self.fetch()
        if self.deciding() != before:
            raise Missing(f"{self.place.address}: another process has trained in it just now")

    def deciding(self) -> list:
        paths = [self.directory / name for name in DECIDING]
        return [path.read_bytes() if path.is_file() else None for path in paths]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the address for this process, and keeps it up to date."""
        if not self.place:
            yield
            return
        ended, self.lease = threading.Event(), Lease(self.place)
        beats = threading.Thread(target=self.beat, args=(ended,), daemon=True)
        with self.lease.held():
            self.refresh()
            beats.start()
            try:
                with self.flushed():
                    yield
            finally:
                ended.set()
                beats.join()

    @contextlib.contextmanager
    def flushed(self) -> Iterator[None]:
        """Brings everything to the address at the end, whatever that is."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong is told
                self.flush(traces=True)
            raise
        self.flush(traces=True)

    def flush(self, *, traces: bool = False) -> None:
        """Brings everything to the address, `traces` in the end alone. Raises Unfinished where that cannot be done; who
        holds the address holds it still when this returns."""
        if self.place:
            with remote.reached(self.place.address):
                if self.lease:
                    self.lease.confirm()
                self.bring(lambda name, size: traces or not is_trace(name))
                if self.lease:
                    self.lease.confirm()

    def after(self, tell: Callable) -> Callable:
        """`tell`, whose last words of a process that ends at once come to the address, too; and the lock goes."""

        def told(*what) -> None:
            tell(*what)
            with self.lock:
                self.flush()
                self.flush(traces=True)
                if self.lease:
                    self.lease.release()

        return told

    def remove(self, name: str) -> None:
        """Deletes a file, here and at the address."""
        (self.directory / name).unlink(missing_ok=True)
        if self.place:
            with self.lock, remote.reached(self.place.address):
                self.lease.confirm()
                self.known.pop(name, None)
                self.place.remove(name)

    def bring(self, is_due: Callable) -> None:
        """Writes the files that have changed, if is_due(name, bytes); who does not hold the address, its traces alone.
        Raises Unfinished where some have gone, which is never meant."""
        with self.lock:
            there = dict(self.changing())
            gone = sorted(name for name in self.known if not (self.directory / name).exists())
            if gone or not workdir.address(self.directory) or not self.directory.is_dir():
                raise Unfinished(
                    f"{self.place.address}: its copy {self.directory.parent} was deleted meanwhile, in whole or in part"
                )
            for name, found in there.items():
                path = self.directory / name
                ours = self.lease or is_trace(name)
                if ours and found != self.known.get(name) and is_due(name, found[0]):
                    with contextlib.suppress(FileNotFoundError):  # replaced, or gone since
                        if self.lease:
                            self.lease.confirm(SILENCE / 2)  # many large ones take time
                        self.write(name, path)
                        self.known[name], self.written[name] = found, time.monotonic()

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
                self.bring(self.is_due)

    def is_due(self, name: str, size: int) -> bool:
        passed = time.monotonic() - self.written.get(name, -math.inf)
        return passed >= size / RATE and not is_trace(name)


def check_names(address: str, names: dict) -> None:
    """Raises BadInput where something lies at an address that is neither a run nor what a first start leaves."""
    try:
        workdir.check_names(
            names, ("store", "logs")
        )  # a config may put its store there, a launcher its logs
    except BadInput as error:
        raise workdir.no_run(address, error) from None


def is_trace(name: str) -> bool:
    return name.startswith(f"{TRACES}/")


def stamp(path: Path) -> tuple:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
