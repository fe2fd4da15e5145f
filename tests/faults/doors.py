"""Malformed inputs at every door, which hypothesis makes."""

from collections.abc import Sequence
from pathlib import Path

from fuzz import fuzz

from faults.world import Outcome, World


def attempts(world: World, scratch: Path, name: str, tries: Sequence, seed: int) -> list[Outcome]:
    """Counted by door: how many were refused, and how many successes its oracle has confirmed."""
    outcomes = []
    for door, tally in fuzz(len(tries), seed, scratch / name).items():  # its own small world
        print(
            f"{door}: {tally.refused} refused, {tally.right} right",
            *tally.failures,
            sep="\n",
            flush=True,
        )
        outcomes += [Outcome(True, f"{door} refused", "")] * tally.refused
        outcomes += [Outcome(True, f"{door} right", "")] * tally.right
        outcomes += [Outcome(False, "neither", text) for text in tally.failures]
    return outcomes
