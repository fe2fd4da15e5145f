"""Damaged stores: `bert-jax verify` names the file, and no run starts from them."""

import shutil
from pathlib import Path

from kits import damage as damages

from faults.world import Outcome, World, call

# Of a manifest that is made anew after the damage only `verify` can know.
HIDDEN = (damages.shorten_and_make_manifest, damages.exchange_ends_and_make_manifest)
KINDS = (
    damages.flip,
    damages.truncate,
    damages.truncate_at_a_record,
    damages.delete,
    damages.swap,
    damages.flip_in_the_manifest,
    damages.flip_in_the_tokenizer,
    damages.swap_splits,
    damages.zero_a_block,
    damages.exchange_records,
    *HIDDEN,
)


def damage(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kinds of damage take turns."""
    store, kind = directory / "store", KINDS[number % len(KINDS)]
    shutil.copytree(world.directory / "store", store)
    before = contents(store)
    hit = kind(store, draw)
    while contents(store) == before:  # a block of zeros may have been one
        hit = kind(store, draw)
    wrong = unnamed(store, hit)
    if not wrong and kind not in HIDDEN:
        wrong = used(world, store, hit, directory / "run")
    name = kind.__name__.replace("_", " ")
    return Outcome(not wrong, "named", f"{name}: {', '.join(hit)}; {wrong or 'named'}")


def contents(store: Path) -> dict[str, bytes]:
    return {name: (store / name).read_bytes() for name in damages.names(store)}


def unnamed(store: Path, hit: list[str]) -> str:
    """What is wrong with the words of `bert-jax verify`, or an empty text."""
    ended = call("verify", "--store", store)
    lines = ended.said.splitlines()[:-1]
    missing = [name for name in hit if not any(name in line for line in lines)]
    return f"verify, code {ended.code}: {ended.said}" if missing or ended.code != 1 else ""


def used(world: World, store: Path, hit: list[str], run: Path) -> str:
    """What is wrong with how a run refuses the store, or an empty text."""
    before = contents(store)
    ended = call(*world.pretrain(run, store=store, batches=""))
    if ended.code != 2 or len(ended.said.splitlines()) != 1:
        return f"pretrain, code {ended.code}: {ended.said}"
    # Of a tokenizer that has become smaller or larger than the manifest says, no file is to blame for sure.
    names = [*hit, "the tokenizer has"] if hit[0].startswith("tokenizer/") else hit
    if not any(name in ended.said for name in names):
        return f"pretrain names another file: {ended.said}"
    return "something was written" if run.exists() or contents(store) != before else ""
