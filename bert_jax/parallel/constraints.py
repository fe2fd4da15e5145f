"""Sharding constraints for what a model computes. Model code names the kind of an array, and no mesh axes.

Without constraints, XLA gathers the activations of the whole batch on the devices that hold a shard of a parameter,
instead of gathering the parameter. Arrays stay unconstrained without a mesh, if the number of rows is not divisible by
it (the one example row of `init`), and inside `shard_map` (`mesh.summed`).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import get_abstract_mesh

from bert_jax.parallel.mesh import ROWS, TABLE, axis_size


def by_rows(x, last) -> P:
    """Returns the sharding of x[B, ..., D]: by rows, and the last axis as `last`."""
    return P(ROWS, *[None] * (x.ndim - 2), last)


def activation(x):
    """Shards x[B, ...] and its gradient by rows; the compiler shards the last axis like the kernel that it meets."""
    return constrain(x, by_rows(x, P.UNCONSTRAINED))


def stream(x):
    """Shards x[B, ..., D], the residual stream, and its gradient by rows only."""
    return constrain(x, P(ROWS))


def logits(x):
    """Shards x[B, ..., V] and its gradient by rows, and the vocabulary over `tensor`."""
    return constrain(x, by_rows(x, "tensor"))


def table(x):
    """Gathers the embedding table x[V, D] over `fsdp` and keeps it sharded over `tensor`."""
    return constrain(x, P("tensor", None))


# The embedding lookup and the gradients of the table use `shard_map`. The compiler alone would all-reduce the gradient
# of the whole table over `data` and `fsdp`; here `fsdp` reduce-scatters it, and `data` all-reduces only shards.


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def lookup(words, ids, dtype, gradient_dtype):
    """Looks up ids[B, L] in words[V, D], which is sharded as TABLE; returns float32[B, L, D] rounded to `dtype`, in
    which a sharded table is gathered.

    If the table is sharded, its gradient is summed over devices in `gradient_dtype`.
    """
    return _lookup_forward(words, ids, dtype, gradient_dtype)[0]


def _lookup_forward(words, ids, dtype, gradient_dtype):
    # Ids were validated when the data was read, so the gathers need no bounds checks.
    if not is_sharded(ids):
        vectors = words.at[ids].get(mode="promise_in_bounds")
        # Unlike a cast and a cast back, this is never optimized away.
        target = jnp.finfo(dtype)
        vectors = jax.lax.reduce_precision(vectors, target.nexp, target.nmant)
        return vectors, (words, ids)

    def look_up_part(part, ids):
        ids, is_local = to_local(ids, part.shape[0])
        vectors = part.at[ids].get(mode="promise_in_bounds").astype(words.dtype)
        return jax.lax.psum(jnp.where(is_local, vectors, 0), "tensor")

    look_up = jax.shard_map(look_up_part, in_specs=(P("tensor"), P(ROWS)), out_specs=P(ROWS))
    return look_up(words.astype(dtype), ids), (words, ids)


def _lookup_backward(dtype, gradient_dtype, saved, gradient):
    words, ids = saved
    size = words.shape[0]
    if is_sharded(ids):
        size //= tensor_parts()

    def add_vectors(ids, gradient):
        ids, is_local = to_local(ids, size)
        part = jnp.zeros((size, words.shape[1]), words.dtype)
        part = part.at[ids].add(jnp.where(is_local, gradient, 0), mode="promise_in_bounds")
        return part.astype(gradient_dtype)

    d_words = sum_rows(add_vectors, (P(ROWS), P(ROWS)), ids, gradient)
    return d_words.astype(words.dtype), None


lookup.defvjp(_lookup_forward, _lookup_backward)


def to_local(ids, size: int):
    """Converts ids to indices into this device's `size` rows of the table along `tensor`.

    Returns (indices, 0 if elsewhere; bool[..., 1], whether the rows are on this device).
    """
    ids = ids - tensor_part() * size
    is_local = (ids >= 0) & (ids < size)
    return jnp.where(is_local, ids, 0), is_local[..., None]


def sum_to_table(function, logits, x):
    """Computes function(logits[B, ..., V], x[B, ..., D]) -> [V, D], a sum over rows; the result is sharded as TABLE."""
    return sum_rows(function, (by_rows(logits, "tensor"), P(ROWS)), logits, x)


def sum_rows(function, specs, *arrays):
    """Computes function(*arrays) -> [V, D] as `sum_to_table`. specs: of the arrays, whose rows are sharded."""
    if not is_sharded(arrays[0]):
        return function(*arrays)

    def sum_part(*parts):
        part = jax.lax.psum_scatter(function(*parts), "fsdp", tiled=True)
        return jax.lax.psum(part, "data")

    return jax.shard_map(sum_part, in_specs=specs, out_specs=TABLE)(*arrays)


def by_heads(function):
    """Wraps a kernel, which XLA cannot partition, so that each device computes its rows and its heads.

    function(x[B, L, H, K], ..., y[B, ...], ...) -> [B, L, H, K]: arrays with four axes have heads, the others do not.
    """

    def call(*arrays):
        mesh = get_abstract_mesh()
        if not is_split(mesh):
            return function(*arrays)
        rows = ROWS if is_divisible(mesh, arrays[0]) else None
        with_heads = P(rows, None, "tensor")
        specs = tuple(with_heads if x.ndim == 4 else P(rows) for x in arrays)
        # Unchecked: kernels do not declare over which axes their results vary.
        split = jax.shard_map(function, in_specs=specs, out_specs=with_heads, check_vma=False)
        return split(*arrays)

    return call


def map_rows(function):
    """Wraps function(*arrays, **parameters) -> [B, ...] so that each device computes its rows of arrays [B, ...].

    Without this, XLA would gather the rows of all devices for some operations, such as `top_k`, and send in each step
    of a scan over time. The trees of parameters are gathered before it, and their gradients are summed after it.
    """

    def call(*arrays, **parameters):
        mesh = get_abstract_mesh()
        if not is_split(mesh) or not is_divisible(mesh, arrays[0]):
            return function(*arrays, **parameters)

        def part(arrays, parameters):
            return function(*arrays, **parameters)

        specs = P(ROWS), P()
        # Unchecked: with the check, gradients of parameters would be summed where a scan reads them.
        split = jax.shard_map(part, in_specs=specs, out_specs=P(ROWS), check_vma=False)
        return split(arrays, parameters)

    return call


def tensor_part():
    """Returns int32[], the index of a device on the `tensor` axis within `by_heads`."""
    if "tensor" in get_abstract_mesh().manual_axes:
        return jax.lax.axis_index("tensor")
    return jnp.int32(0)


def tensor_parts() -> int:
    """Returns the number of shards into which `by_heads` splits the heads."""
    mesh = get_abstract_mesh()
    return mesh.shape["tensor"] if is_split(mesh) else 1


def constrain(x, spec: P):
    """Constrains the sharding of an array, if the mesh in use permits it."""
    mesh = get_abstract_mesh()
    if not is_split(mesh):
        return x
    if spec[0] == ROWS and not is_divisible(mesh, x):
        return x
    return jax.lax.with_sharding_constraint(x, spec)


def is_split(mesh) -> bool:
    """Returns whether the compiler partitions a computation over the devices of a mesh."""
    return mesh.size > 1 and not mesh.manual_axes


def is_divisible(mesh, x) -> bool:
    """Returns whether the rows of x[B, ...] are divisible by the shards of rows."""
    return x.shape[0] % axis_size(mesh, ROWS) == 0


def is_sharded(rows) -> bool:
    """Returns whether both the embedding table and rows[B, ...] are sharded over the mesh in use."""
    mesh = get_abstract_mesh()
    if not is_split(mesh) or not is_divisible(mesh, rows):
        return False
    return mesh.shape["fsdp"] * mesh.shape["tensor"] > 1
