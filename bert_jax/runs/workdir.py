"""The files of a run: their names, reading and writing them, and where they are.

config.json     resolved; reads back as a config
run.json        what is being trained: parameters, unigram entropy, vocabulary, store fingerprint, versions, starts
status.json     kept current while it runs
metrics.jsonl   one object a line, each step once a split
tensorboard/    the same for TensorBoard
tokenizer/      a copy of the store's, so that the model can be used without the store
checkpoints/    Orbax
traces/         of the steps that config.profile names
summary.json    at the end
.lock           who trains (lock.py)

Of a workdir at an address, as gs://bucket/run, checkpoints are read and written there. The small files are in a
temporary directory of this host while a command runs; the process that trains uploads those that have changed.
"""

import contextlib
import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax import config
from bert_jax.errors import BadInput, Missing, Unfinished
from bert_jax.runs import lock
from bert_jax.storage import atomic, checksums, remote

TIME = "%Y-%m-%dT%H:%M:%SZ"
CHECKPOINTS, TRACES = "checkpoints", "traces"
BESIDE = ("store", "logs")  # what else a workdir may hold before it has begun
ELSEWHERE = (CHECKPOINTS, TRACES, *BESIDE)  # what stays at an address: large, or of others
# A start that is killed before it writes run.json leaves these files.
STARTED = (lock.LOCK, "config.json", "tokenizer")


# --- Where it is ----------------------------------------------------------------------------------


class Workdir:
    """A run's files, on a disk or at an address.

    name: as the user gave it. directory: of the small files on this host, the workdir itself or a temporary copy.
    place: the address, or None. lock: of the address, while this process holds it.
    """

    def __init__(self, name: Path | str, directory=None, place: remote.Place | None = None):
        self.name, self.directory, self.place = str(name), Path(directory or name), place
        self.lock: lock.Lock | None = None
        self.uploaded = {}  # {name: stamp} of what is at the address as it is here
        self.turn = threading.RLock()  # to upload

    @property
    def checkpoints(self) -> Path:
        """Whole, as Orbax wants it; at an address an epath.Path."""
        if not self.place:
            return self.directory.absolute() / CHECKPOINTS
        from etils import epath

        return epath.Path(self.place.address) / CHECKPOINTS

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds it for this process, which alone may write to it, and uploads what it has written in the end, whatever
        that is. Raises Missing where another process holds it."""
        if not self.place:
            with lock.on_disk(self.directory):
                yield
            return
        self.lock = lock.Lock(self.place)
        with self.lock.held():
            try:
                yield
            except BaseException:
                with contextlib.suppress(Exception):  # what went wrong is told
                    self.upload()
                raise
            self.upload()

    def let_go(self) -> None:
        """The last call of a process that ends at once."""
        try:
            self.upload()
        finally:
            if self.lock:
                self.lock.release()

    def download(self, only: Iterable[str] = ()) -> None:
        """The small files, or `only` these; of what is no run, what a first start leaves."""
        with remote.reached(self.name):
            for name in only or self.small_files():
                path = self.directory / name
                if checksums.inside(self.directory, name):  # an object may be called ../name
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        self.place.download(name, path)
                        self.uploaded[name] = checksums.stamp(path)

    def small_files(self) -> list[str]:
        there, found = self.place.names(), []
        for name, is_directory in there.items():
            if name not in (lock.LOCK, *ELSEWHERE) and ("run.json" in there or name in STARTED):
                found += self.place.tree(name) if is_directory else [name]
        return found

    def upload(self) -> None:
        """Uploads the files that have changed; run.json, which makes a run of them, last. Raises Missing where another
        process holds the address."""
        if not self.lock:
            return
        with self.turn, remote.reached(self.name):
            self.lock.check()
            for path in sorted(self.directory.rglob("*"), key=lambda path: path.name == "run.json"):
                name = path.relative_to(self.directory).as_posix()
                with contextlib.suppress(FileNotFoundError):  # replaced just now
                    if path.is_file() and not path.name.startswith("."):
                        stamp = checksums.stamp(path)
                        if stamp != self.uploaded.get(name):
                            self.place.upload(path, name)
                            self.uploaded[name] = stamp

    def try_upload(self) -> None:
        """The same where it can wait: what is out of reach now is uploaded with the next checkpoint."""
        try:
            self.upload()
        except (Missing, Unfinished):
            if self.lock.is_lost:
                raise

    def check(self, *inside: str) -> None:
        """Raises BadInput where a run cannot be made, written or continued: a directory that is not empty holds a run,
        or what a first start of one leaves when it is killed.

        inside: paths that may lie in it beside the run's own files, as that of its store, or ''.
        """
        if self.place:
            with remote.reached(self.name):
                names = set(self.place.names())
        else:
            check_writable(self.directory)
            names = set(os.listdir(self.directory)) if self.directory.exists() else set()
        try:
            if names & {"run.json", "config.json"}:
                config.read(self.directory / "config.json")
            relative = (os.path.relpath(path, self.directory) for path in inside if path)
            beside = {*BESIDE, *(path.split(os.sep)[0] for path in relative)}
            prepared = tuple(f".{name}." for name in beside)  # hidden directories of `prepare`
            for name in sorted(names - {*STARTED, *beside}) if "run.json" not in names else ():
                if not (atomic.is_temporary(name) or name.startswith(prepared)):
                    raise BadInput(name)
        except BadInput as error:
            raise BadInput(
                f"--workdir {self.name}: holds something else than a run ({error}); name an empty directory"
            ) from None


@contextlib.contextmanager
def opened(name: Path | str, *only: str) -> Iterator[Workdir]:
    """The workdir of this name, with its small files, or `only` these, until the context ends."""
    if not remote.is_address(name):
        yield Workdir(name)
        return
    with copied(name) as run:
        run.download(only)
        yield run


@contextlib.contextmanager
def copied(name: str) -> Iterator[Workdir]:
    """A workdir at an address whose copy is empty. Errors within name the address."""
    place = remote.Place(name)
    with tempfile.TemporaryDirectory(prefix="bert_jax-", ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary, place.root.rpartition("/")[2])
        directory.mkdir()
        with remote.naming(directory, place.address), remote.told(place.address):
            yield Workdir(place.address, directory, place)


@contextlib.contextmanager
def created(name: Path | str) -> Iterator[Workdir]:
    """A new workdir to write to, which appears when it is whole; at an address its run.json is written last, without
    which it is no run."""
    if not remote.is_address(name):
        with atomic.whole(name, "--workdir") as directory:
            yield Workdir(name, directory)
        return
    with atomic.terminable(), copied(name) as run:
        run.lock = lock.Lock(run.place)
        with run.lock.held():
            check_new(name)
            yield run
            run.upload()


def check_new(name: Path | str) -> None:
    """Raises BadInput where something is there already, or nothing can be made."""
    if not remote.is_address(name):
        check_writable(Path(name))
        atomic.free(name, "--workdir")
        return
    with remote.reached(f"--workdir {name}"):
        if set(remote.Place(name).names()) - {lock.LOCK}:
            raise BadInput(f"--workdir {name}: there already, and not empty")


def check_writable(directory: Path) -> None:
    """Raises BadInput where a workdir cannot be made or written."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        raise BadInput(f"--workdir {directory}: {there} is not a directory")
    if not os.access(there, os.W_OK):
        raise BadInput(f"--workdir {directory}: {there} cannot be written")


# --- Its files ------------------------------------------------------------------------------------


def new_run() -> str:
    """An id for a run, by which its checkpoints are known as its own."""
    return uuid.uuid4().hex


def write_json(path: Path, values: dict, *, sync: bool = True) -> None:
    atomic.write(path, json.dumps(values, indent=2) + "\n", sync=sync)


def read_json(path: Path) -> dict:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: not a JSON object")
    return values


def write_status(workdir: Path, state: str, **values) -> None:
    """state: imported, running, done, preempted, interrupted or failed. Whose it is, and when, are added."""
    values = {"state": state, **values, **lock.this_process(), "time": stamp()}
    write_json(workdir / "status.json", values, sync=False)  # written again every few seconds


def stamp(seconds: float | None = None) -> str:
    """A time, in seconds since the epoch, as it is written down; now where it is left out."""
    return time.strftime(TIME, time.gmtime(seconds))
