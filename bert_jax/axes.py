"""The axes of every mesh, and where what a model computes lies on them. Model code says what a thing is, no more.

Left to itself, XLA moves the activations of the whole batch to the devices that hold a part of a parameter, rather than
the parameter to the rows. These do nothing where no mesh is in use, where the rows do not divide (one example row), and
where each device has been given its own rows (`sharding.summed`).
"""

import math

import jax
from jax.sharding import PartitionSpec as P

AXES = ("data", "fsdp", "tensor")
ROWS = ("data", "fsdp")  # over which the rows of a batch are split


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
    """x[V, D] as rows use it, and what they add to its gradient: in parts over `tensor` alone."""
    return lie(x, P("tensor", None))


def lie(x, spec: P):
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size <= 1 or mesh.manual_axes:
        return x
    if spec[0] == ROWS and x.shape[0] % math.prod(mesh.shape[a] for a in ROWS):
        return x
    return jax.lax.with_sharding_constraint(x, spec)
