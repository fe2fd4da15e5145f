"""The files of a run: their names, and reading and writing them.

config.json     resolved; reads back as a config
run.json        what is being trained: parameters, unigram entropy, vocabulary, store fingerprint, versions, starts
status.json     kept current while it runs
metrics.jsonl   one object a line, each step once a split
tensorboard/    the same for TensorBoard
tokenizer/      a copy of the store's, so that the model can be used without the store
checkpoints/    Orbax; of a workdir at an address (mirror.py) they alone are not in the copy on this host
traces/         of the steps that config.profile names
summary.json    at the end
.lock           held by the process that trains
"""

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from bert_jax import config
from bert_jax.data import download
from bert_jax.errors import BadInput
from bert_jax.storage import atomic, regular_files

TIME = "%Y-%m-%dT%H:%M:%SZ"
CHECKPOINTS = "checkpoints"
COPIES, ADDRESS = "runs", "address"  # of mirror.py
RUN_KEYS = ("parameters", "vocabulary")  # of run.json, whoever wrote it: training or an import
# A start that is killed before it writes run.json leaves these files, and temporary ones that begin with TEMPORARY.
STARTED = (".lock", "config.json", "status.json", "tokenizer")
TEMPORARY = (".config.json.", ".run.json.", ".status.json.", ".preflight.", ".shared.")
SEEN = 60.0  # seconds until a new file is seen by all hosts: network file systems remember what was not there


def address(directory: Path) -> str:
    """Of what the directory is a copy that mirror.py has made; '' for any other."""
    path = Path(directory).parent / ADDRESS
    home = os.path.expanduser(download.cache() / COPIES)
    return path.read_text() if str(path.parent.parent) == home and path.is_file() else ""


def name(directory: Path) -> str:
    """What a workdir is called in messages."""
    return address(directory) or str(directory)


def checkpoints(directory: Path) -> Path:
    """Where the checkpoints of a workdir lie: in it; those of a copy at the address, as an epath.Path."""
    if not (found := address(directory)):
        return directory / CHECKPOINTS
    from etils import epath

    return epath.Path(found) / CHECKPOINTS


def check_writable(directory: Path) -> None:
    """Raises BadInput where a workdir cannot be made or written."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        raise BadInput(f"--workdir {directory}: {there} is not a directory")
    if not os.access(there, os.W_OK):
        raise BadInput(f"--workdir {directory}: {there} cannot be written")


def check(directory: Path, inside: tuple[str, ...] = ()) -> None:
    """Raises BadInput where a run cannot be made, written or continued.

    inside: paths that the run may have within its workdir beside its own files, as a store.
    """
    check_writable(directory)
    if directory.exists():
        try:
            check_content(directory, inside)
        except BadInput as error:
            raise no_run(name(directory), error) from None


def no_run(place: str, found: BadInput) -> BadInput:
    return BadInput(
        f"--workdir {place}: holds something else than a run ({found}); name an empty directory"
    )


def check_content(directory: Path, inside: tuple[str, ...]) -> None:
    """Raises BadInput for a directory that holds neither a run, nor what a first start of one leaves when it is killed,
    nor nothing."""
    names = {path.name for path in directory.iterdir()}
    if "run.json" in names:
        check_keys(directory / "run.json", RUN_KEYS)
        return
    check_names(
        names, [os.path.relpath(path, directory).split(os.sep)[0] for path in inside if path]
    )
    if "status.json" in names:
        check_keys(directory / "status.json", ("state", "pid"))
    if "config.json" in names:
        config.read(directory / "config.json")
    elif "tokenizer" in names:  # written after config.json
        raise BadInput("tokenizer")


def check_names(names: Iterable[str], inside: Iterable[str]) -> None:
    """Raises BadInput for the names in a directory without run.json that no start leaves: `inside` are known."""
    prefixes = (*TEMPORARY, *(f".{place}." for place in inside))
    for name in sorted({*names} - {*STARTED, *inside}):
        if not name.startswith(prefixes):
            raise BadInput(name)


def check_keys(path: Path, keys: tuple[str, ...]) -> None:
    missing = [key for key in keys if key not in read_json(path)]
    if missing:
        raise BadInput(f"{path}: no {missing[0]}")


@contextlib.contextmanager
def locked(directory: Path):
    """Makes the directory and holds it for this process: two in one workdir would undo each other's work."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / ".lock", "a")
    except OSError as error:
        raise BadInput(f"--workdir {directory}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"--workdir {directory}: another process is training in it") from None
        except OSError as error:
            raise BadInput(f"--workdir {directory}: cannot be locked ({error.strerror})") from None
        yield


def check_shared(directory: Path, processes) -> None:
    """Returns once process 0 has come here too. Raises BadInput in a process that does not see what it writes.

    processes: a Cluster.
    """
    if processes.is_alone or address(directory):
        return
    path = directory / f".shared.{uuid.uuid4().hex}"
    if processes.is_main:
        path.touch()
    path = directory / processes.from_main(path.name)
    deadline = time.monotonic() + SEEN
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    seen = processes.gather(path.exists())
    if processes.is_main:
        path.unlink()
    if not all(seen):
        raise BadInput(
            f"--workdir {directory}: process {seen.index(False)} does not see what process 0 writes there; it must"
            " lie on a file system that all processes share"
        )


def new_run() -> str:
    """An id for a run, by which its checkpoints are known as its own."""
    return uuid.uuid4().hex


def write_json(path: Path, values: dict, *, sync: bool = True) -> None:
    atomic.write(path, json.dumps(values, indent=2) + "\n", sync=sync)


def read_json(path: Path) -> dict:
    try:
        values = json.loads(regular_files.text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: not a JSON object")
    return values


def mark_status(workdir: Path, **changes) -> None:
    """Changes status.json where it lies: a full disk has no room for another file."""
    path = workdir / "status.json"
    values = read_json(path) | changes
    with open(path, "r+") as file:
        file.write(json.dumps(values) + "\n")
        file.truncate()


def mark_done(workdir: Path) -> None:
    """Of a run that is: a kill may have come before it was said."""
    with contextlib.suppress(BadInput):
        if read_json(workdir / "status.json").get("state") != "done":
            mark_status(workdir, state="done")


def write_status(workdir: Path, state: str, **values) -> None:
    """state: imported, running, done, preempted, interrupted or failed. Whose it is, and when, are added."""
    path, values = workdir / "status.json", {"state": state, **values, **process(), "time": stamp()}
    write_json(path, values, sync=False)  # written again every few seconds


def stamp(seconds: float | None = None) -> str:
    """A time, in seconds since the epoch, as it is written down; now where it is left out."""
    return time.strftime(TIME, time.gmtime(seconds))


def process() -> dict:
    """This process, for others to find out whether it is still there."""
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
