"""Where what a model computes lies on the axes of a mesh. Model code says what a thing is, no more.

Left to itself, XLA moves the activations of the whole batch to the devices that hold a part of a parameter, rather than
the parameter to the rows. Nothing is said where no mesh is in use, where the rows do not divide (one example row), and
where each device has been given its own rows (`mesh.summed`).
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from bert_jax.parallel.mesh import ROWS, TABLE


def activation(x):
    """x[B, ...] and its gradient stay split by rows; the last axis as its kernel is."""
    return lie(x, P(ROWS, *[None] * (x.ndim - 2), P.UNCONSTRAINED))


def stream(x):
    """x[B, ..., D], what goes from layer to layer, and its gradient: by rows, and each vector whole."""
    return lie(x, P(ROWS))


def logits(x):
    """x[B, ..., V] over the vocabulary and its gradient: by rows, and by the vocabulary over `tensor`."""
    return lie(x, P(ROWS, *[None] * (x.ndim - 2), "tensor"))


def table(x):
    """x[V, D] as the rows of a batch use it: gathered over `fsdp`, in parts over `tensor`."""
    return lie(x, P("tensor", None))


# Looking words up and the gradients of their table are written out: the compiler, left alone, sums what rows add to
# the gradient of the whole table over `data` and `fsdp`. Here `fsdp` sums it to parts, and `data` parts.


def lookup(words, ids, gradient_dtype):
    """The rows ids[B, L] of words[V, D], which lie as TABLE says: [B, L, D].

    The gradient is summed over devices in `gradient_dtype` where they have parts.
    """
    # Ids are checked at the door, so the gathers need no bounds check.
    if not is_parted(ids):
        return words.at[ids].get(mode="promise_in_bounds")
    return lookup_in_parts(words, ids, gradient_dtype)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def lookup_in_parts(words, ids, gradient_dtype):
    def local(part, ids):
        part = jax.lax.all_gather(part, "fsdp", axis=0, tiled=True)
        ids, here = within(ids, part.shape[0])
        vectors = part.at[ids].get(mode="promise_in_bounds")
        return jax.lax.psum(jnp.where(here, vectors, 0), "tensor")

    return jax.shard_map(local, in_specs=(TABLE, P(ROWS)), out_specs=P(ROWS))(words, ids)


def _lookup_forward(words, ids, gradient_dtype):
    return lookup_in_parts(words, ids, gradient_dtype), (words, ids)


def _lookup_backward(gradient_dtype, saved, gradient):
    words, ids = saved
    size = words.shape[0] // jax.sharding.get_abstract_mesh().shape["tensor"]

    def local(ids, gradient):
        ids, here = within(ids, size)
        whole = jnp.zeros((size, words.shape[1]), words.dtype)
        whole = whole.at[ids].add(jnp.where(here, gradient, 0), mode="promise_in_bounds")
        return sum_to_part(whole.astype(gradient_dtype)).astype(words.dtype)

    sum_rows = jax.shard_map(local, in_specs=(P(ROWS), P(ROWS)), out_specs=TABLE)
    return sum_rows(ids, gradient), None


lookup_in_parts.defvjp(_lookup_forward, _lookup_backward)


def within(ids, size: int):
    """Ids as places in this device's part of `size` rows over `tensor`, and bool[..., 1], whether they are there."""
    ids = ids - jax.lax.axis_index("tensor") * size
    here = (ids >= 0) & (ids < size)
    return jnp.where(here, ids, 0), here[..., None]


def sum_to_table(function, logits, x):
    """function(logits[B, ..., V], x[B, ..., D]), a sum over rows: [V, D], where the table lies."""
    if not is_parted(x):
        return function(logits, x)

    def local(logits, x):
        return sum_to_part(function(logits, x))

    places = P(ROWS, *[None] * (x.ndim - 2), "tensor"), P(ROWS)
    return jax.shard_map(local, in_specs=places, out_specs=TABLE)(logits, x)


def sum_to_part(whole):
    """Of what every device adds to whole[V, D], the sum of this device's part."""
    part = jax.lax.psum_scatter(whole, "fsdp", tiled=True)
    return jax.lax.psum(part, "data")


def by_heads(function):
    """Of function(x[B, L, H, K], ..., y[B, ...], ...) -> [B, L, H, K] that is a kernel, which no compiler shares out:
    each device computes its rows and, of a `tensor` axis, its heads."""

    def shared(*arguments):
        mesh = jax.sharding.get_abstract_mesh()
        if not is_shared(mesh):
            return function(*arguments)
        rows = ROWS if divides(mesh, arguments[0]) else None
        vectors = P(rows, None, "tensor")
        places = tuple(vectors if x.ndim == 4 else P(rows) for x in arguments)
        # Unchecked: kernels do not say over which axes their results differ.
        split = jax.shard_map(function, in_specs=places, out_specs=vectors, check_vma=False)
        return split(*arguments)

    return shared


def tensor_part():
    """Which part of the `tensor` axis a device computes, within `by_heads`."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return jax.lax.axis_index("tensor") if "tensor" in manual else jnp.int32(0)


def tensor_parts() -> int:
    """Into how many parts `by_heads` parts the heads."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape["tensor"] if is_shared(mesh) else 1


def lie(x, spec: P):
    mesh = jax.sharding.get_abstract_mesh()
    if not is_shared(mesh) or (spec[0] == ROWS and not divides(mesh, x)):
        return x
    return jax.lax.with_sharding_constraint(x, spec)


def is_shared(mesh) -> bool:
    """Whether the compiler shares out over the devices of a mesh what is computed."""
    return mesh.size > 1 and not mesh.manual_axes


def divides(mesh, x) -> bool:
    return x.shape[0] % math.prod(mesh.shape[axis] for axis in ROWS) == 0


def is_parted(rows) -> bool:
    """Whether the rows of a table lie in parts, and those of a batch do."""
    mesh = jax.sharding.get_abstract_mesh()
    return is_shared(mesh) and mesh.shape["fsdp"] * mesh.shape["tensor"] > 1 and divides(mesh, rows)
