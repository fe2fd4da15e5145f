"""What the filters share: functions of groups of shards that write partitions, and functions of parts that read them.

Each is run anywhere, on its task alone; what they share are files in the scratch directory.
"""

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.preparation import partitions
from bert_jax.data.preparation.partitions import Partitions
from bert_jax.data.preparation.shards import Group


class Stages(NamedTuple):
    run: Callable  # (function, tasks) -> results in the order of the tasks
    groups: list[Group]
    scratch: Path

    def leave(self, alive: np.ndarray) -> Path:
        """A file of bool[documents]: those that are not left out yet."""
        path = self.scratch / "alive"
        alive.tofile(path)
        return path

    def spread(self, function: Callable, name: str, columns: int, records: int) -> tuple:
        """(partitions of about so many records, what `function(Partitions, Group)` returned, which writes them)."""
        made = partitions.make(self.scratch / name, columns, records)
        return made, list(self.run(functools.partial(function, made), self.groups))

    def take(self, function: Callable, made: Partitions) -> Iterator[Any]:
        """What `function(Partitions, part)` returns of each part, which are removed in the end."""
        yield from self.run(functools.partial(function, made), made.parts)
        shutil.rmtree(made.directory)


def read_alive(path: Path, group: Group) -> list[np.ndarray]:
    """Of what `leave` left, bool[D] of each shard of a group."""
    values = np.fromfile(path, bool, group.stop - group.start, offset=group.start)
    return np.split(values, [shard.documents.stop - group.start for shard in group.shards[:-1]])
