"""Malformed inputs at every door, which hypothesis makes."""

from collections.abc import Sequence
from pathlib import Path

from fuzz import fuzz

from faults.world import Outcome, World


def attempts(world: World, scratch: Path, name: str, tries: Sequence, seed: int) -> list[Outcome]:
    failures = fuzz(len(tries), seed, scratch / name)  # its own small world
    print(*failures, sep="\n", flush=True)
    good = [Outcome(True, "refused or right", "")] * (len(tries) - len(failures))
    return good + [Outcome(False, "neither", text) for text in failures]
