"""Random damages to a token store: each is given its directory and a generator, and says which files it hit."""

import os

import numpy as np

from bert_jax.data import store as stores

ARRAYS = [f"{split}/{array}.npy" for split in stores.SPLITS for array in stores.ARRAYS]


def flip_bit(path, place: int = -1, bit: int = 0) -> None:
    """Changes a bit in the same file, as a disk would."""
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[place] ^= 1 << bit
        file.seek(0)
        file.write(content)


def names(store) -> list[str]:
    """Every file that has content, the manifest too, but no cached rows."""
    paths = (path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())
    return sorted(name for name in paths if not name.startswith("index/"))


def pick(store, draw, start: str = "") -> str:
    return str(draw.choice([name for name in names(store) if name.startswith(start)]))


def truncate(store, draw):
    name = pick(store, draw)
    os.truncate(store / name, draw.integers((store / name).stat().st_size))
    return [name]


def grow(store, draw):
    name = pick(store, draw)
    with open(store / name, "ab") as file:
        file.write(draw.bytes(draw.integers(1, 5000)))
    return [name]


def pick_array(store, draw, arrays=ARRAYS):
    name = str(draw.choice(arrays))
    return name, np.load(store / name)


def truncate_at_a_record(store, draw):
    """The end of an array is lost, its header is not."""
    name, array = pick_array(store, draw)
    os.truncate(store / name, 128 + array.itemsize * int(draw.integers(len(array))))
    return [name]


def flip(store, draw, start: str = ""):
    name = pick(store, draw, start)
    size = (store / name).stat().st_size
    flip_bit(store / name, int(draw.integers(size)), int(draw.integers(8)))
    return [name]


def flip_in_the_manifest(store, draw):
    return flip(store, draw, "manifest.json")


def flip_in_the_tokenizer(store, draw):
    return flip(store, draw, "tokenizer/")


def delete(store, draw):
    name = pick(store, draw)
    (store / name).unlink()
    return [name]


def swap(store, draw):
    one, two = draw.choice([name for name in names(store) if name != "manifest.json"], 2, False)
    exchange(store / one, store / two)
    return [one, two]


def swap_splits(store, draw):
    exchange(store / "train", store / "heldout")
    return [*ARRAYS, stores.HELDOUT_HASHES]


def exchange(one, two) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def zero_a_block(store, draw):
    """A block of zeros is what a disk gives back where the block never reached it."""
    name = pick(store, draw)
    content = (store / name).read_bytes()
    first = int(draw.integers((len(content) + 4095) // 4096)) * 4096
    zeros = bytes(min(4096, len(content) - first))
    (store / name).write_bytes(content[:first] + zeros + content[first + 4096 :])
    return [name]


def exchange_records(store, draw, arrays=ARRAYS):
    name, array = pick_array(store, draw, arrays)
    one, two = draw.choice(len(array), 2, False)
    while array[one] == array[two]:
        two = draw.integers(len(array))
    array[[one, two]] = array[[two, one]]
    np.save(store / name, array)
    return [name]


DAMAGES = [truncate, grow, truncate_at_a_record, flip, delete, swap, swap_splits, zero_a_block]
DAMAGES += [flip_in_the_manifest, flip_in_the_tokenizer, exchange_records]
