"""Notices files that change while a run reads them, by their stat."""

import os
from collections.abc import Iterable
from pathlib import Path

from bert_jax.errors import BadInput


class Watch:
    """Files of a directory as they are now."""

    def __init__(self, directory: Path, names: Iterable[str]):
        paths = [Path(directory) / name for name in (*names, "manifest.json")]
        self.seen = {path: stamp(path) for path in paths}

    def check(self) -> None:
        """Raises BadInput at the first file that has another size or time since, or is gone."""
        for path, before in self.seen.items():
            if stamp(path) != before:
                raise BadInput(f"{path}: its size or time has changed while it was read")


def stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
