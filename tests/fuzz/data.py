"""The doors of stores and saved batches: what was damaged is named, or the very batches come out."""

from pathlib import Path

from hypothesis import strategies as st

from fuzz.attempts import CACHE, Attempt, listing
from fuzz.damage import damaged
from fuzz.world import BATCHES


def content(directory: Path) -> dict:
    """{name: bytes} of what can be read, links followed, without rows that are made again."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    found = {str(path.relative_to(directory.parent)): path.read_bytes() for path in paths}
    return {name: data for name, data in found.items() if not name.startswith(CACHE)}


def verified_store(draw, world, place) -> Attempt:
    store, original = place / "store", world.path / "store"
    note = damaged(draw, original, store)
    before = listing(place)

    def oracle(outcome):
        values = outcome.values
        is_sound = outcome.code == 0
        if values["sound"] != is_sound or bool(values["problems"]) == is_sound:
            return f"exit code {outcome.code} of {values}"
        there, here = content(original), content(store)
        names = {name for name in there if there[name] != here.get(name)}
        named = {f"store/{problem['file']}" for problem in values["problems"]}
        # Without a manifest nobody knows what else was there.
        is_open = "store/manifest.json" in named or any(p.is_symlink() for p in store.rglob("*"))
        missing = [name for name in names if not any(n in name for n in named)]
        if listing(place) != before:
            return "verify has written"
        return f"{missing} not named, only {named}" if missing and not is_open else ""

    return Attempt(["verify", "--store", store, "--json", "-"], oracle, note, (0, 1))


def opened_store(draw, world, place) -> Attempt:
    note = damaged(draw, world.path / "store", place / "store")
    return same_batch(draw, world, note, store=place / "store")


def saved_batches(draw, world, place) -> Attempt:
    note = damaged(draw, world.path / "saved", place / "saved")
    return same_batch(draw, world, note, batches=place / "saved")


def same_batch(draw, world, note, **changes) -> Attempt:
    step = draw(st.integers(0, BATCHES - 1))

    def oracle(outcome):
        is_same = outcome.values["sha256"] == world.digests[step]
        return "" if is_same else f"another batch of step {step}"

    arguments = ["inspect", *world.arguments(**changes), "--step", str(step), "--json", "-"]
    return Attempt(arguments, oracle, note)
