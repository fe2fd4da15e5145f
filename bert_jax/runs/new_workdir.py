"""A workdir that is made whole or not at all, on a disk or at an address."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.runs import mirror, workdir
from bert_jax.runs.lease import LOCK, Lease
from bert_jax.storage import remote
from bert_jax.storage.atomic import free, terminable, whole

RUN = "run.json"


def check(name: Path | str) -> None:
    """Raises BadInput where something is there already, or nothing can be made."""
    if remote.is_address(name):
        with remote.reached(f"--workdir {name}"):
            check_place(remote.Place(name))
    else:
        workdir.check_writable(Path(name))
        free(name, "--workdir")


def check_place(place: remote.Place) -> None:
    if set(place.names()) - {LOCK}:
        raise BadInput(f"--workdir {place.address}: there already, and not empty")


@contextlib.contextmanager
def made(name: Path | str) -> Iterator[Path]:
    """A directory for the files of the workdir. Checkpoints first: they lie where workdir.checkpoints says, which is at
    the address at once, and none of them is taken for a run's without its run.json, which is the last to go there."""
    if not remote.is_address(name):
        with whole(name, "--workdir") as directory:
            yield directory
        return
    place = remote.Place(name)
    lease = Lease(place)
    with (
        terminable(),
        mirror.made(place) as directory,
        remote.told(place.address),
        lease.held(),
    ):
        with remote.reached(place.address):
            check_place(place)
        try:
            yield directory
            with remote.reached(place.address):
                for path in sorted(directory.rglob("*"), key=lambda path: path.name == RUN):
                    if path.is_file():
                        lease.confirm()
                        place.upload(path, path.relative_to(directory).as_posix())
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong is told
                for file in set(place.tree()) - {LOCK}:
                    lease.confirm()  # or they are another's
                    place.remove(file)
            raise
