"""The doors of stores and saved batches: what was damaged is named, or the very batches come out (what `verify` says of
a store: tests/commands/test_verify.py)."""

from hypothesis import strategies as st

from fuzz.attempts import Attempt
from fuzz.damage import damaged
from fuzz.world import BATCHES


def opened_store(draw, world, place) -> Attempt:
    damaged(draw, world.path / "store", place / "store")
    return same_batch(draw, world, store=place / "store")


def saved_batches(draw, world, place) -> Attempt:
    damaged(draw, world.path / "saved", place / "saved")
    return same_batch(draw, world, batches=place / "saved")


def same_batch(draw, world, **changes) -> Attempt:
    step = draw(st.integers(0, BATCHES - 1))

    def oracle(outcome):
        assert outcome.values["sha256"] == world.digests[step]

    return Attempt(["inspect", *world.arguments(**changes), "--step", step, "--json", "-"], oracle)
