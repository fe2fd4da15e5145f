"""Notices files that change while a run reads them."""

import os
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import checksums


class Watch:
    """The files of a directory as its manifest lists them, looked at again and again.

    A look costs one stat a file; a file is read only where that differs from the look before, as after a copy in its
    place, and is right where its bytes still are what the manifest says.
    """

    def __init__(self, directory: Path, files: dict):
        """files: {name: {bytes, sha256}}, without the manifest itself."""
        self.directory = Path(directory)
        path = self.directory / "manifest.json"
        manifest = {"bytes": path.stat().st_size, "sha256": checksums.digest(path)}
        self.files = files | {path.name: manifest}
        self.seen = {name: stamp(self.directory / name) for name in self.files}

    def check(self) -> None:
        """Raises BadInput at the first file that is not what it was."""
        for name, expected in self.files.items():
            path = self.directory / name
            now = stamp(path)
            if now != self.seen[name]:
                text = checksums.check_file(self.directory, name, expected, hashes=True)
                if text:
                    raise BadInput(f"{path}: changed while it was read: {text}")
                self.seen[name] = now


def stamp(path: Path) -> tuple | None:
    """What differs once a file was written to, replaced or touched; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
