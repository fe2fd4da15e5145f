"""The indexes of rows as files beside the store, which the next start reuses.

    index/train-128-nsp-short0.1-seed12345-phase0-STORE-v3-epoch3.npy   int64[R, 3], see sentence_pairs.py
    index/train-128-nsp-short0.1-seed12345-phase0-STORE-v3-rows.json    how many rows epoch 0 has
    index/train-128-nsp-...-v3-packed8-epoch3.npy                       uint32[R, 8], see packing.py

A name tells everything a file depends on (weights of sources too: train-128-nsp-short0.1-weights1.0,2.5-...).
A file is written under a temporary name and renamed when it is whole and on the disk, so several
processes may build the same one. Everything here may be deleted at any time. A file ends with a
checksum of its rows. It is compared when a file is opened, but not a large one's, so that the first
batch does not wait: of that, PROBE rows are looked at, the others are when they are used, and
`bert-jax verify` compares.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import uuid
import weakref
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import sentence_pairs
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.storage import regular_files

VERSION = 3  # of the rows that the same store and rules give; part of the names
PROBE = 1024  # rows, evenly spread
SMALL = 1 << 28  # bytes of an index up to which it is read whole when it is opened
HEADER = 128  # bytes of a .npy header of this shape and type
CHECKSUM = 4  # bytes behind the array: CRC-32 of its data
NICE = 19  # priority of what is done in the background: what others leave
# Seconds after which a temporary file is taken for one that a killed process left.
STALE = 24 * 3600


class Cancelled(Exception):
    """The index is not needed any more."""


def never() -> bool:
    return False


class Kind(NamedTuple):
    """What the files of an index hold."""

    dtype: np.dtype
    columns: int
    sound: Callable[[np.ndarray], bool]  # whether these rows can be


def kind_of(tokens: int) -> Kind:
    """The rows of a split of so many tokens."""
    return Kind(np.dtype(np.int64), sentence_pairs.COLUMNS, lambda index: sound(index, tokens))


def of_pairs(store: Store, split: str, rules_: sentence_pairs.Rules) -> "Indexes":
    """The rows of one split under one set of rules, as sentence_pairs.py makes them."""
    part = store.splits[split]
    made_from = hashlib.sha256(store.fingerprint.encode()).hexdigest()[:12]
    name = (
        f"{split}-{rules_.length}-{rules_.pairs}-short{rules_.short_rate}{name_weights(rules_)}"
        f"-seed{rules_.seed}-phase{rules_.phase}-{made_from}-v{VERSION}"
    )

    def build(epoch, cancelled):
        return sentence_pairs.build(part, rules_, epoch, cancelled)

    def count(epoch):
        return sentence_pairs.count(part, rules_, epoch)

    return Indexes(store.path / "index", name, kind_of(len(part.tokens)), build, count)


class Indexes:
    """The files of one index, one an epoch.

    build: (epoch, cancelled) -> its rows, in parts, no more of them once cancelled().    count: (epoch) -> how many.
    """

    def __init__(self, directory: Path, name: str, kind: Kind, build: Callable, count: Callable):
        self.directory, self.name, self.kind = directory, name, kind
        self.build, self.count = build, count
        self.spare = None  # a temporary directory, if the store is read-only or the disk full

    def open(self, epoch: int, cancelled: Callable[[], bool] = never) -> np.ndarray:
        """An epoch's rows, mapped from their file, which is built if it is missing or damaged."""
        return self._somewhere(lambda directory: self._open(directory, epoch, cancelled))

    def rows_per_epoch(self) -> int:
        """The rows of epoch 0, which every epoch is taken to have: a short one wraps, a surplus is
        dropped."""
        return self._somewhere(self._rows_per_epoch)

    def forget(self, epoch: int) -> None:
        """Deletes the indexes of earlier epochs."""
        for directory in filter(None, (self.directory, self.spare)):
            for path in directory.glob(f"{self.name}-epoch*.npy"):
                number = re.search(r"-epoch(\d+)\.npy$", path.name)
                if number and int(number[1]) < epoch:
                    remove(path)

    def _somewhere(self, work: Callable[[Path], object]):
        """work(directory) beside the store or, where that fails, in a temporary directory."""
        if self.spare is None:
            try:
                return work(self.directory)
            except OSError as error:
                self.spare = Path(tempfile.mkdtemp(prefix="bert_jax_index_"))
                weakref.finalize(self, shutil.rmtree, self.spare, ignore_errors=True)
                # Said once: an index may be large, and a temporary directory may lie in memory.
                print(
                    f"{self.directory}: {error.strerror}; row indexes go to {self.spare}",
                    file=sys.stderr,
                )
        return work(self.spare)

    def _open(self, directory: Path, epoch: int, cancelled) -> np.ndarray:
        path = directory / f"{self.name}-epoch{epoch}.npy"
        index = read(path, self.kind)
        if index is not None:
            return index
        damaged = path.exists()
        write(path, self.kind, self.build(epoch, cancelled), cancelled, damaged)
        return np.load(path, mmap_mode="r")

    def _rows_per_epoch(self, directory: Path) -> int:
        path = directory / f"{self.name}-rows.json"
        try:
            known = json.loads(regular_files.text(path))
            if known == remembered(path, known["rows"]) and known["rows"] > 0:
                return known["rows"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass  # missing or damaged: count again
        index = read(directory / f"{self.name}-epoch0.npy", self.kind)
        number = self.count(0) if index is None else len(index)
        replace(path, lambda file: file.write(json.dumps(remembered(path, number)).encode()))
        return number


def remembered(path: Path, number: int) -> dict:
    """What the file about the number of rows holds."""
    return {"rows": number, "checksum": zlib.crc32(f"{path.name} {number}".encode())}


def name_weights(rules_: sentence_pairs.Rules) -> str:
    """'' where every source is read once, and so are its rows."""
    if all(weight == 1 for weight in rules_.weights):
        return ""
    weights = ",".join(str(float(weight)) for weight in rules_.weights)
    # A file's name has room for 255 characters.
    short = weights if len(weights) < 100 else hashlib.sha256(weights.encode()).hexdigest()[:12]
    return f"-weights{short}"


def read(path: Path, kind: Kind) -> np.ndarray | None:
    """The index in a file, or None if there is no file or not a sound one."""
    try:
        index = np.load(regular_files.check(path), mmap_mode="r")
    except Exception:  # a damaged header is evaluated, and can raise anything
        return None
    shaped = index.dtype == kind.dtype and index.ndim == 2 and index.shape[1] == kind.columns
    whole = shaped and path.stat().st_size == HEADER + index.nbytes + CHECKSUM and len(index)
    if not whole or (index.nbytes <= SMALL and not intact(path)):
        return None
    return index if kind.sound(index[:: -(-len(index) // PROBE)]) else None


def check(index: np.ndarray, sound: bool) -> None:
    """Raises BadInput and deletes the file of a mapped index whose rows were found to be not sound."""
    if not sound:
        path = Path(index.filename)
        remove(path)
        remedy = "delete it and start" if path.exists() else "it is deleted now, start"
        raise BadInput(f"{path}: damaged; {remedy} again")


def sound(index: np.ndarray, tokens: int) -> bool:
    """Whether every row lies within the tokens."""
    part = sentence_pairs.unpack(np.asarray(index))
    bad = (part.a_length < 1) | (part.a_start < 0) | (part.a_start + part.a_length > tokens)
    bad |= (part.b_length < 0) | (part.b_start < 0) | (part.b_start + part.b_length > tokens)
    return not (bad | (part.label < 0) | (part.label > 1)).any()


def write(path: Path, kind: Kind, parts, cancelled: Callable[[], bool], anew: bool = False) -> None:
    """Writes the parts of an index one after the other, and behind them a checksum; the header last,
    when the number of rows is known. anew: in the place of a file that is no good."""

    def fill(file):
        number = checksum = 0
        file.write(bytes(HEADER))
        for part in parts:
            # Not a mapped file: on a full disk that would be a SIGBUS instead of an error.
            data = part.tobytes()
            file.write(data)
            number, checksum = number + len(part), zlib.crc32(data, checksum)
        if cancelled():
            raise Cancelled
        file.write(checksum.to_bytes(CHECKSUM, "little"))
        file.seek(0)
        shape = number, kind.columns
        header = {"descr": kind.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)

    replace(path, fill, anew)


def intact(path: Path) -> bool:
    """Whether an index file is what was written; reads all of it."""
    with open(path, "rb") as file:
        file.seek(HEADER)
        checksum, rest = 0, b""
        while data := file.read(1 << 24):
            rest, data = data[-CHECKSUM:], rest + data[:-CHECKSUM]
            checksum = zlib.crc32(data, checksum)
        return rest == checksum.to_bytes(CHECKSUM, "little")


def replace(path: Path, fill: Callable, anew: bool = True) -> None:
    """Writes a file by `fill(file)` under a temporary name and renames it.

    Unless it is to be written anew, a file that another process has put there in the meantime stays: on a network
    file system another host may have mapped it, and would lose its pages.
    """
    path.parent.mkdir(exist_ok=True)
    for left in path.parent.glob(".*.tmp"):
        if time.time() - left.stat().st_mtime > STALE:
            remove(left)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())  # or after a power cut the name may have zeros behind it
        if anew or not linked(temporary, path):
            os.replace(temporary, path)
    finally:
        remove(temporary)


def linked(temporary: Path, path: Path) -> bool:
    """Whether there is a file at `path` now, this one or another's; False where the file system has no links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:
        return False
    return True


def remove(path: Path) -> None:
    """Deletes a file if it is there and may be deleted."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


class Ahead:
    """Calls work(cancelled) in the background. Cancelled when it is dropped, and before the
    interpreter ends."""

    def __init__(self, work: Callable):
        stop, self.future = threading.Event(), Future()
        # A daemon, because Python waits for other threads before it calls what cancels this one.
        thread = threading.Thread(target=run, args=(work, stop, self.future), daemon=True)
        thread.start()
        self.cancel = weakref.finalize(self, end, stop, thread)

    def result(self):
        """What `work` returned or raised, once it has."""
        return self.future.result()


def run(work: Callable, stop: threading.Event, future: Future) -> None:
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        # The cores belong to training; on two of them an index took a quarter of its speed.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    try:
        future.set_result(work(stop.is_set))
    except BaseException as error:  # it is raised again where the result is asked for
        future.set_exception(error)


def end(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    if thread is not threading.current_thread():
        thread.join()
