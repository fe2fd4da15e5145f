"""Fingerprints of arrays: 64 bits that depend on every value and its index, and are the same on any mesh.

The first half is the sum, modulo 2**32, of a hash of each element's bits and row-major index; the second is the sum of
that hash, hashed again with the index. Integer sums do not depend on their order, so each device sums its own shard.
The hash is a bijection of the bits: if one element differs, the first sum differs; if several do, both sums agree with
a probability of 2**-64.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bert_jax import prng
from bert_jax.errors import Unfinished
from bert_jax.parallel.mesh import AXES, by_path, with_shardings

# An odd multiplier: elements whose first hashes collide have different second hashes.
AGAIN = np.uint32(0x85EBCA6B)
PIECE = 1 << 18  # elements of a host array that are hashed at a time


class Leaf(NamedTuple):
    """The dtype, shape and fingerprint of an array."""

    dtype: str
    shape: list[int]
    digest: str  # 16 hex digits


def digest(total) -> str:
    """Formats uint32[2] as 16 hex digits."""
    return "".join(f"{int(part):08x}" for part in total)


def of_tree(tree) -> dict[str, Leaf]:
    """Returns {path: Leaf} of a tree of host arrays."""
    return {path: of_array(leaf) for path, leaf in by_path(tree).items()}


def of_array(array: np.ndarray) -> Leaf:
    """Returns the Leaf of a host array. Pieces have one size, so that one compiled program hashes all arrays."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"u{flat.dtype.itemsize}")
    total = np.zeros(2, np.uint32)
    for start in range(0, bits.size, PIECE):
        size = min(PIECE, bits.size - start)
        piece = np.zeros(PIECE, np.uint32)
        piece[:size] = bits[start : start + size]
        total += jax.device_get(of_piece(piece, np.uint32(start % 2**32), np.uint32(size)))
    return make_leaf(array, total)


def make_leaf(array, total) -> Leaf:
    """Returns the Leaf of an array whose sums are `total`, uint32[2]."""
    return Leaf(str(array.dtype), list(array.shape), digest(total))


@jax.jit
def of_piece(bits, start, size):
    """Returns uint32[2], the sums over the first `size` elements of uint32[PIECE], whose indices begin at `start`."""
    indices = jnp.arange(PIECE, dtype=jnp.uint32)
    return sums(jnp.where(indices < size, hashes(bits, indices + start), 0))


def hashes(bits, indices):
    """Hashes elements twice, by their bits and indices: uint32[...], uint32[...] -> uint32[2, ...]."""
    first = prng.fold(indices, bits, jax.lax.shift_right_logical)
    second = prng.mix(first ^ indices * AGAIN, jax.lax.shift_right_logical)
    return jnp.stack([first, second])


def sums(hashed):
    """Sums uint32[2, ...] to uint32[2]."""
    return hashed.reshape(2, -1).sum(axis=1, dtype=jnp.uint32)


@partial(jax.jit, static_argnames="shape")  # traced once for all layers
def of_part(part, start, shape):
    """Returns uint32[2], the sums over a device's shard of an array of `shape`. start: the shard's offset per axis."""
    if part.dtype == bool:
        part = part.astype(jnp.uint8)
    bits = jax.lax.bitcast_convert_type(part, f"uint{part.dtype.itemsize * 8}").astype(jnp.uint32)
    indices = jnp.zeros(part.shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(part.ndim)):
        position = jax.lax.broadcasted_iota(jnp.uint32, part.shape, axis) + start[axis]
        indices += position * np.uint32(stride % 2**32)
        stride *= shape[axis]
    return sums(hashes(bits, indices))


def count_not_finite(part):
    """Returns int32, how many values of a shard are not finite."""
    if jnp.issubdtype(part.dtype, jnp.inexact):
        return (~jnp.isfinite(part)).sum(dtype=jnp.int32)
    return jnp.int32(0)


def lower(mesh: Mesh, shapes, shardings):
    """Lowers tree -> (sums uint32[D, N, 2], counts int32[N]) for a tree of N leaves with these shapes and shardings.

    sums: what each of the D devices, in mesh order, computes for each leaf; they agree if the devices' copies do.
    counts: the values of each leaf that are not finite.
    """
    leaves = jax.tree.leaves(shapes)
    specs = [sharding.spec for sharding in jax.tree.leaves(shardings)]

    def local(*parts):
        totals = []
        counts = []
        for part, leaf, spec in zip(parts, leaves, specs, strict=True):
            totals.append(of_part(part, starts(part, spec), leaf.shape))
            counts.append(count_not_finite(part))
        totals = jnp.stack(totals)
        counts = jnp.stack(counts)
        for axis in AXES:
            is_split = np.array([axis in jax.tree.leaves(tuple(spec)) for spec in specs])
            totals = jnp.where(is_split[:, None], jax.lax.psum(totals, axis), totals)
            counts = jnp.where(is_split, jax.lax.psum(counts, axis), counts)
        return jax.lax.all_gather(totals, AXES), jax.lax.pmax(counts, AXES)

    # Unchecked: whether the devices agree is what the program finds out.
    function = jax.shard_map(
        local, mesh=mesh, in_specs=tuple(specs), out_specs=P(), check_vma=False
    )
    program = jax.jit(lambda tree: function(*jax.tree.leaves(tree)))
    return program.lower(with_shardings(shapes, shardings))


def starts(part, spec: P) -> list:
    """Returns the offset of this device's shard, a uint32 for each axis of the array."""
    offsets = [jnp.uint32(0)] * part.ndim
    for axis, group in enumerate(spec):
        if group:
            offsets[axis] = jax.lax.axis_index(group).astype(jnp.uint32) * part.shape[axis]
    return offsets


def compute(program, tree, mesh: Mesh) -> dict[str, Leaf]:
    """Runs the compiled program of `lower` on a tree; returns {path: Leaf}.

    Raises FloatingPointError if a value is not finite, and Unfinished if devices hold different copies of an array.
    """
    totals, counts = jax.device_get(program(tree))
    arrays = by_path(tree)
    not_finite = [f"{name} ({count})" for name, count in zip(arrays, counts, strict=True) if count]
    if not_finite:
        raise FloatingPointError(f"values are not finite in {', '.join(not_finite)}")
    if (totals != totals[:1]).any():
        different = ", ".join(outliers(totals, arrays, mesh))
        raise Unfinished(f"devices hold different copies: {different}")
    return {
        name: make_leaf(array, total)
        for (name, array), total in zip(arrays.items(), totals[0], strict=True)
    }


def outliers(totals: np.ndarray, names: Iterable[str], mesh: Mesh) -> list[str]:
    """Returns 'NAME on DEVICES' for each array whose copies differ; DEVICES disagree with the majority."""
    texts = []
    for index, name in enumerate(names):
        digests = [digest(total) for total in totals[:, index]]
        majority = max(sorted(set(digests)), key=digests.count)
        pairs = zip(mesh.devices.flat, digests, strict=True)
        devices = [str(device) for device, of_device in pairs if of_device != majority]
        if devices:
            texts.append(f"{name} on {', '.join(devices)}")
    return texts


def differences(saved: dict[str, Leaf], current: dict[str, Leaf]) -> str:
    """Names the first array whose fingerprints differ; '' if none do."""
    for name in sorted(saved | current):
        if saved.get(name) != current.get(name):
            return f"{name} differs from its saved fingerprint"
    return ""
