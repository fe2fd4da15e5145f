"""The workdir of a run: its files, and where they are.

config.json     the resolved config; can be passed as --config
run.json        what is being trained: parameters, unigram entropy, vocabulary, store fingerprint, versions, starts
status.json     written every few seconds during the run
metrics.jsonl   one JSON object per line; one line per reported step and split
samples.jsonl   what the model predicts in some held-out rows, at each evaluation
tensorboard/    the same for TensorBoard
wandb/          the same for Weights & Biases, with config.log.wandb; never in a bucket
tokenizer/      a copy of the store's tokenizer, so that the model works without the store
checkpoints/    by Orbax
traces/         profiler traces of the steps in config.profile
summary.json    written at the end
report.html     its curves and samples, written at the end unless config.log.report is False
.lock           the process that trains (lock.py)

If the workdir is an address, such as gs://bucket/run, checkpoints are read and written in the bucket directly. A
command downloads the small files to a temporary directory; the training process uploads those that have changed.
"""

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bert_jax import config
from bert_jax.errors import BadInput, Unavailable, Unfinished
from bert_jax.runs import lock
from bert_jax.storage import atomic, checksums, json_file, remote

TIME = "%Y-%m-%dT%H:%M:%SZ"
FORMAT = 10  # of run.json and config.json
CHECKPOINTS = "checkpoints"
TRACES = "traces"
BESIDE = ("store", "logs")  # other directories that a workdir may contain before the run starts
SKIPPED = (CHECKPOINTS, TRACES, *BESIDE)  # too large, or not files of the run
UPLOAD_EVERY = 30.0  # seconds between uploads at reports; each checkpoint uploads, too
# The files of a start that was killed before it wrote run.json.
STARTED = (lock.LOCK, "config.json", "tokenizer")


# --- Directory or bucket --------------------------------------------------------------------------


class Workdir:
    """The files of a run, on a disk or in a bucket.

    name: as the user typed it.
    directory: where the small files are: the workdir itself or, for an address, a temporary copy.
    bucket: the directory in the bucket; None on a disk.
    lock: the lock in the bucket while this process holds it.
    step: of the checkpoint to read; None: that which the config chooses.
    """

    def __init__(self, name: Path | str, directory=None, bucket: remote.Directory | None = None):
        self.name = str(name)
        self.directory = Path(directory or name)
        self.bucket = bucket
        self.lock: lock.Lock | None = None
        self.step: int | None = None
        self.uploaded = {}  # {name: stamp} of the files that are the same in the bucket
        self.upload_lock = threading.RLock()  # two threads may upload
        self.next_upload = 0.0  # time before which `try_upload` does nothing

    @property
    def checkpoints(self) -> Path:
        """The directory of checkpoints: an absolute path, as Orbax requires, or an epath.Path in a bucket."""
        if not self.bucket:
            return self.directory.absolute() / CHECKPOINTS
        from etils import epath

        return epath.Path(self.bucket.address) / CHECKPOINTS

    @contextmanager
    def locked(self):
        """Locks the workdir during the context, and finally uploads its files.

        Raises Unavailable if another process holds the lock.
        """
        if not self.bucket:
            with lock.on_disk(self.directory):
                yield
            return
        self.lock = lock.Lock(self.bucket)
        with self.lock.held():
            try:
                yield
            except BaseException:
                with suppress(Exception):  # the original error is raised instead
                    self.upload()
                raise
            self.upload()

    def upload_and_release(self) -> None:
        """Uploads the files and releases the lock, in a process that is about to end."""
        try:
            self.upload()
        finally:
            if self.lock:
                self.lock.release()

    def download(self, only: Iterable[str] = ()) -> None:
        """Downloads the small files, or `only` these; without a run.json, only what an unfinished start left."""
        with remote.explain(self.name):
            for name in only or self.small_files():
                path = self.directory / name
                if checksums.is_inside(self.directory, name):  # an object may be called ../name
                    with suppress(FileNotFoundError):  # deleted in the meantime
                        self.bucket.download(name, path)
                        self.uploaded[name] = checksums.stamp(path)

    def small_files(self) -> list[str]:
        """Lists the files in the bucket that are downloaded."""
        entries = self.bucket.names()
        names = entries.keys() - {lock.LOCK, *SKIPPED}
        if "run.json" not in entries:
            names &= {*STARTED}
        files = []
        for name in sorted(names):
            files += self.bucket.tree(name) if entries[name] else [name]
        return files

    def upload(self) -> None:
        """Uploads the files that have changed; run.json last, since a directory with it is a run. Raises Unavailable if
        another process has taken the lock."""
        if not self.lock:
            return
        with self.upload_lock, remote.explain(self.name):
            self.lock.check()
            for path in sorted(self.directory.rglob("*"), key=lambda path: path.name == "run.json"):
                name = path.relative_to(self.directory).as_posix()
                if path.name.startswith(".") or name.startswith("wandb/") or not path.is_file():
                    continue
                with suppress(FileNotFoundError):  # replaced in the meantime
                    stamp = checksums.stamp(path)
                    if stamp != self.uploaded.get(name):
                        self.bucket.upload(path, name)
                        self.uploaded[name] = stamp

    def try_upload(self) -> None:
        """Uploads if the bucket is reachable and the last attempt was UPLOAD_EVERY seconds ago; otherwise the files are
        uploaded later, at the latest with the next checkpoint."""
        if time.monotonic() < self.next_upload:
            return
        self.next_upload = time.monotonic() + UPLOAD_EVERY
        try:
            self.upload()
        except (Unavailable, Unfinished):
            if self.lock.is_lost:
                raise

    def check(self, *inside: str) -> None:
        """Raises BadInput if the directory is not writable, or is neither empty nor a run nor an unfinished start.

        inside: other paths that may be in it, such as that of the store, or ''.
        """
        if self.bucket:
            with remote.explain(self.name):
                names = set(self.bucket.names())
        else:
            check_writable(self.directory)
            names = set(os.listdir(self.directory)) if self.directory.exists() else set()
        is_run = "run.json" in names and read_info(self.directory)
        if is_run or "config.json" in names:
            config.read(self.directory / "config.json")
        if is_run:
            return
        others = {*BESIDE}
        for path in inside:
            if path:
                others.add(os.path.relpath(path, self.directory).split(os.sep)[0])
        prepared = tuple(f".{name}." for name in others)  # temporary directories of `prepare`
        for name in sorted(names - {*STARTED, *others}):
            if not (atomic.is_temporary(name) or name.startswith(prepared)):
                hint = f"{name} is in it, and it is not a run; name an empty directory"
                raise BadInput(f"--workdir {self.name}: {hint}")


@contextmanager
def opened(name: Path | str, *only: str) -> Iterator[Workdir]:
    """Opens the workdir of this name during the context; downloads its small files, or `only` these, from a bucket."""
    if not remote.is_address(name):
        yield Workdir(name)
        return
    with copied(name) as run:
        run.download(only)
        yield run


@contextmanager
def opened_at(name: Path | str) -> Iterator[Workdir]:
    """Opens the workdir that RUN or RUN@STEP names, to read a checkpoint."""
    name, step = split_step(name)
    with opened(name) as run:
        run.step = step
        yield run


def split_step(name: Path | str) -> tuple[str, int | None]:
    """Returns RUN and STEP of RUN@STEP, or None for a name without a step."""
    run, at, step = str(name).rpartition("@")
    if at and step.isdecimal() and not os.path.exists(name):
        return run, int(step)
    return str(name), None


@contextmanager
def copied(name: str) -> Iterator[Workdir]:
    """Opens a workdir in a bucket with an empty local copy. Errors within the context name the address."""
    bucket = remote.Directory(name)
    with tempfile.TemporaryDirectory(prefix="bert_jax-", ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary, bucket.root.rpartition("/")[2])
        directory.mkdir()
        with remote.naming(directory, bucket.address), remote.explain_remote(bucket.address):
            yield Workdir(bucket.address, directory, bucket)


@contextmanager
def created(name: Path | str) -> Iterator[Workdir]:
    """Creates a workdir atomically: on a disk it appears when the context ends; in a bucket, run.json comes last."""
    if not remote.is_address(name):
        with atomic.new_directory(name, "--workdir") as directory:
            yield Workdir(name, directory)
        return
    with atomic.terminable(), copied(name) as run:
        run.lock = lock.Lock(run.bucket)
        with run.lock.held():
            check_new(name)
            yield run
            run.upload()


def check_new(name: Path | str) -> None:
    """Raises BadInput if the name exists and is not an empty directory, or cannot be created."""
    if not remote.is_address(name):
        check_writable(Path(name))
        atomic.check_free(name, "--workdir")
        return
    with remote.explain(f"--workdir {name}"):
        if set(remote.Directory(name).names()) - {lock.LOCK}:
            raise BadInput(
                f"--workdir {name}: exists and is not empty; remove it, or name a new directory"
            )


def check_writable(directory: Path) -> None:
    """Raises BadInput if a directory cannot be created or written."""
    parent = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not parent.is_dir():
        raise BadInput(f"--workdir {directory}: {parent} is not a directory")
    if not os.access(parent, os.W_OK):
        raise BadInput(f"--workdir {directory}: {parent} cannot be written")


def of_config(name: str) -> str:
    """Returns the workdir of the run whose config the value of --config names, or '' if it is not a run's.

    As in `config.find`, a shipped config hides a directory of its name.
    """
    if config.is_shipped(name):
        return ""
    directory, _, file = name.rpartition("/")
    directory = (directory or ".") if file == "config.json" else name
    return directory if remote.exists(f"{directory}/run.json") else ""


# --- Its files ------------------------------------------------------------------------------------


def new_run_id() -> str:
    """Returns the id of a new run. Its checkpoints contain it, so that those of another run are recognized."""
    return uuid.uuid4().hex


def read_info(directory: Path) -> dict:
    """Reads run.json. Raises BadInput if another version of bert_jax wrote it."""
    values = json_file.read(directory / "run.json")
    if values.get("format") != FORMAT:
        raise BadInput(
            f"{directory}/run.json: format {values.get('format')}, this version reads {FORMAT}; train in a new workdir"
        )
    return values


def read_summary(directory: Path) -> dict:
    """Reads summary.json; {} unless the latest start has ended the run and written it."""
    path = directory / "summary.json"
    if not path.is_file():  # there may be no run.json, either
        return {}
    values = json_file.read(path)
    starts = read_info(directory).get("starts") or ()
    is_newest = values.get("starts") == len(starts)
    return values if is_newest and isinstance(values.get("best"), dict) else {}


def write_info(directory: Path, values: dict) -> None:
    json_file.write(directory / "run.json", {"format": FORMAT, **values})


def write_status(workdir: Path, state: str, **values) -> None:
    """Writes status.json with the time and the pid and host of this process.

    state: imported, running, done, preempted, interrupted or failed.
    """
    values = {"state": state, **values, **lock.this_process(), "time": stamp()}
    json_file.write(workdir / "status.json", values, sync=False)  # written again every few seconds


def stamp(seconds: float | None = None) -> str:
    """Formats a time in seconds since the epoch, by default now, in UTC."""
    return time.strftime(TIME, time.gmtime(seconds))
