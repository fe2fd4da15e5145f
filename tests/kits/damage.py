"""Random damage to a token store: each function takes its directory and a generator, and returns the damaged files."""

import os

from bert_jax.data import store as stores


def flip_bit(path, index: int = -1, bit: int = 0) -> None:
    """Flips a bit of a file in place, like a faulty disk."""
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[index] ^= 1 << bit
        file.seek(0)
        file.write(content)


def names(store) -> list[str]:
    """Returns the names of all files of a store, with the manifest but without indexes."""
    paths = (path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())
    return sorted(name for name in paths if not name.startswith("index/"))


def pick(store, draw) -> str:
    return str(draw.choice(names(store)))


def truncate(store, draw):
    name = pick(store, draw)
    os.truncate(store / name, draw.integers((store / name).stat().st_size))
    return [name]


def grow(store, draw):
    name = pick(store, draw)
    with open(store / name, "ab") as file:
        file.write(draw.bytes(draw.integers(1, 5000)))
    return [name]


def flip(store, draw):
    name = pick(store, draw)
    size = (store / name).stat().st_size
    flip_bit(store / name, int(draw.integers(size)), int(draw.integers(8)))
    return [name]


def delete(store, draw):
    name = pick(store, draw)
    (store / name).unlink()
    return [name]


def swap(store, draw):
    first, second = draw.choice(
        [name for name in names(store) if name != "manifest.json"], 2, False
    )
    exchange(store / first, store / second)
    return [first, second]


def swap_splits(store, draw):
    exchange(store / "train", store / "heldout")
    arrays = [f"{split}/{array}.npy" for split in stores.SPLITS for array in stores.ARRAYS]
    return [*arrays, stores.HELDOUT_HASHES]


def exchange(first, second) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


DAMAGES = [truncate, grow, flip, delete, swap, swap_splits]
