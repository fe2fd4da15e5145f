"""The doors of stores and saved batches: what was damaged is named, or the very batches come out."""

import shutil
from pathlib import Path

from hypothesis import strategies as st

from fuzz.attempts import Attempt, listing, parsed
from fuzz.damage import change_file
from fuzz.world import STEPS


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def content(directory: Path) -> dict:
    """{name: bytes} of what can be read, links followed."""
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


def damaged(draw, source: Path, place: Path) -> str:
    """Copies a directory and damages one or two of its files; says how."""
    shutil.copytree(source, place)
    notes = []
    chosen = st.lists(st.sampled_from(files(place)), min_size=1, max_size=2, unique=True)
    for path in draw(chosen):
        notes.append(f"{path.relative_to(place)}: {change_file(draw, path)}")
    return ", ".join(notes)


def verified_store(draw, world, place) -> Attempt:
    store, original = place / "store", world.path / "store"
    note = damaged(draw, original, store)
    before = listing(place)

    def oracle(code, out, err):
        values = parsed(out)
        if listing(place) != before:
            return "verify has written"
        if values["sound"] != (code == 0) or values["sound"] == bool(values["problems"]):
            return f"exit code {code} of {values}"
        there, here = content(original), content(store)
        names = {name for name in there | here if there.get(name) != here.get(name)}
        names = {name for name in names if not name.startswith("index/")}
        if code == 0:
            return f"called sound: {names}" if names else ""
        named = {problem["file"] for problem in values["problems"]}
        # Without a manifest nobody knows what else was there.
        linked = "manifest.json" in named or any(path.is_symlink() for path in store.rglob("*"))
        first = all(any(n == name or n in name for n in named) for name in names)
        return "" if linked or first else f"{names - named} not named, only {named}"

    return Attempt(["verify", "--store", str(store), "--json", "-"], oracle, note, (0, 1))


def batch_oracle(world, step: int):
    def oracle(code, out, err):
        found = parsed(out)["sha256"]
        return "" if found == world.digests[step] else f"another batch of step {step}"

    return oracle


def opened_store(draw, world, place) -> Attempt:
    note = damaged(draw, world.path / "store", place / "store")
    step = draw(st.integers(0, STEPS - 1))
    command = ["inspect", *world.arguments(store=place / "store"), "--step", str(step)]
    return Attempt([*command, "--json", "-"], batch_oracle(world, step), note)


def saved_batches(draw, world, place) -> Attempt:
    note = damaged(draw, world.path / "saved", place / "saved")
    step = draw(st.integers(0, STEPS - 1))
    command = ["inspect", *world.arguments(batches=place / "saved"), "--step", str(step)]
    return Attempt([*command, "--json", "-"], batch_oracle(world, step), note)
