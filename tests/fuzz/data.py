"""Targets of stores and saved batches: damage is reported, or the batches are unchanged.

For `verify` of a store see tests/commands/test_verify.py.
"""

from hypothesis import strategies as st

from fuzz.attempts import Attempt
from fuzz.damage import copy_damaged
from fuzz.world import BATCHES


def store(draw, world, directory) -> Attempt:
    copy_damaged(draw, world.path / "store", directory / "store")
    return same_batch(draw, world, store=directory / "store")


def saved_batches(draw, world, directory) -> Attempt:
    copy_damaged(draw, world.path / "saved", directory / "saved")
    return same_batch(draw, world, batches=directory / "saved")


def same_batch(draw, world, **changes) -> Attempt:
    step = draw(st.integers(0, BATCHES - 1))

    def oracle(outcome):
        assert outcome.values["sha256"] == world.digests[step]

    return Attempt(["inspect", *world.arguments(**changes), "--step", step, "--json", "-"], oracle)
