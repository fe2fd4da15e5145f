"""The mesh and its axes, shardings of parameters by path patterns, and this host's rows of a batch."""

import math
import re
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.errors import BadInput

AXES = ("data", "fsdp", "tensor")
ROWS = ("data", "fsdp")  # the axes over which the rows of a batch are sharded
# The vocabulary is padded to a multiple of this number, which `fsdp` x `tensor` has to divide.
VOCABULARY_MULTIPLE = 128
# The word embeddings are sharded along the vocabulary only: XLA replicates a table that is sharded along both axes.
TABLE = P(("tensor", "fsdp"), None)

# (path pattern, PartitionSpec): the first match wins.
# `tensor` shards heads, hidden layers and the vocabulary; `fsdp` shards another axis of the large arrays. A model's
# file may have rules that come first.
RULES = (
    (r"embedder/words$", TABLE),
    (r"embedder/(positions|segments)$", P()),
    (r"(query|key|value|up|gate)/kernel$", P("fsdp", "tensor")),
    (r"(query|key|value|up|gate)/bias$", P("tensor")),
    (r"(out|down)/kernel$", P("tensor", "fsdp")),
    (r"(pooler|dense)/kernel$", P("fsdp", None)),
    (r"lm/bias$", P(("tensor", "fsdp"))),
    (r"(^|/)(bias|scale|kernel|mix/weights)$", P()),
)


def make_mesh(config, devices=None) -> Mesh:
    """Returns the mesh of `config.mesh` over all devices; data=-1 takes all that the other axes leave.

    With several TPU slices, which only a slow network connects, only the axis `data` extends across slices.
    """
    if devices is None:
        devices = jax.devices()
    tensor = config.mesh.tensor
    fsdp = fsdp_size(config, devices)
    data = config.mesh.data
    shape = f"data={data} fsdp={fsdp} tensor={tensor}"
    if data == -1:
        data = len(devices) // (fsdp * tensor)
    if data < 1 or data * fsdp * tensor != len(devices):
        raise BadInput(f"config.mesh: {shape} does not fit {len(devices)} devices")
    slices = count_slices(devices)
    if data % slices:
        size = len(devices) // slices
        raise BadInput(
            f"config.mesh: {shape}: fsdp and tensor do not fit into each of {slices} slices of {size} devices"
        )
    # Needed for example on 4 x 4 devices with tensor=2, which is a part of a physical axis.
    options = dict(devices=devices, allow_split_physical_axes=True)
    inside = data // slices, fsdp, tensor
    if slices == 1:
        devices = mesh_utils.create_device_mesh(inside, **options)
    else:
        devices = mesh_utils.create_hybrid_device_mesh(inside, (slices, 1, 1), **options)
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * 3)


def fsdp_size(config, devices) -> int:
    """Returns the size of the axis `fsdp`: `mesh.fsdp`, or for -1 all devices of a TPU slice that `data` and `tensor`
    leave, as far as width and vocabulary are divisible by them, and 1 on other devices.

    On TPUs the compiler hides half of the gathers and scatters of `fsdp`, and nothing of the sums of `data`.
    """
    keys = config.mesh
    if keys.fsdp != -1 or devices[0].platform != "tpu":
        return abs(keys.fsdp)
    others = max(keys.data, count_slices(devices)) * keys.tensor
    width = config.model.get("width", 1)
    rows = VOCABULARY_MULTIPLE // keys.tensor
    return max(1, math.gcd(len(devices) // others, width, rows))


def count_slices(devices) -> int:
    """Returns the number of TPU slices of the devices; 1 for others, since JAX calls each GPU host a slice."""
    if devices[0].platform != "tpu":
        return 1
    return len({getattr(device, "slice_index", 0) for device in devices})


def path_name(path) -> str:
    """Formats a JAX key path, as 'network/blocks_0/attention/query/kernel'."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)


def by_path(tree) -> dict[str, Any]:
    """Returns {path: leaf} of a tree, with paths as `path_name` formats them."""
    return {path_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def match(name: str, rules=RULES) -> tuple:
    """Returns the first rule (pattern, value) that matches a path. Raises BadInput if none does."""
    for rule in rules:
        if re.search(rule[0], name):
            return rule
    raise BadInput(f"{name}: no rule of parallel/mesh.py or the model's file names this parameter")


def parameters(shapes, mesh: Mesh, rules=RULES):
    """Returns the shardings of a tree of parameters, by their paths. Raises BadInput if a shape is not divisible."""

    def choose(path, leaf):
        name = path_name(path)
        _, spec = match(name, rules)
        for size, axes in zip(leaf.shape, spec, strict=False):
            parts = axis_size(mesh, axes)
            if size % parts:
                raise BadInput(
                    f"config.mesh: {name} of shape {leaf.shape} is not divisible by {axes}={parts}"
                )
        return NamedSharding(mesh, spec)

    return jax.tree.map_with_path(choose, shapes)


def axis_size(mesh: Mesh, axes) -> int:
    """Returns the number of shards over one axis, a tuple of axes, or None."""
    return math.prod(mesh.shape[axis] for axis in jax.tree.leaves(axes))


def state(shapes, mesh: Mesh, rules=RULES):
    """Returns the shardings of a State: optimizer state with the path and shape of a parameter has its sharding, all
    else is replicated."""
    shardings = parameters(shapes.params, mesh, rules)
    params = with_shardings(shapes.params, shardings)
    by_name = by_path(params)

    def choose(path, leaf):
        names = path_name(path).split("/")
        for start in range(len(names)):
            parameter = by_name.get("/".join(names[start:]))
            if parameter is not None and parameter.shape == leaf.shape:
                return parameter.sharding
        return replicated(mesh)

    opt_state = jax.tree.map_with_path(choose, shapes.opt_state)
    return type(shapes)(replicated(mesh), shardings, opt_state)


def with_shardings(shapes, shardings):
    """Adds shardings to a tree of shapes, for lowering a program."""

    def add(x, sharding):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    return jax.tree.map(add, shapes, shardings)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of batches: the leading axis over `data` and `fsdp`."""
    return NamedSharding(mesh, P(ROWS))


def summed(mesh: Mesh, dtype):
    """Returns a wrapper that all-reduces a function's sums over rows in `dtype`; None if the compiler does it.

    On a mesh with only a `data` axis, gradients are all-reduced once a step, after all micro-batches. The compiler
    alone would all-reduce them in every micro-batch, and twice for a table that is used twice. If parameters are
    sharded, each micro-batch needs collectives anyway.
    """
    if mesh.shape["fsdp"] * mesh.shape["tensor"] > 1 or mesh.size == 1:
        return None

    def wrap(function):
        def sum_part(batch, others):
            values, gradients = function(batch, *others)
            rounded = jax.tree.map(lambda x: x.astype(dtype), gradients)
            values, rounded = jax.lax.psum((values, rounded), "data")
            return values, jax.tree.map(lambda x, like: x.astype(like.dtype), rounded, gradients)

        split = jax.shard_map(
            sum_part,
            mesh=mesh,
            in_specs=(P(ROWS), P()),
            out_specs=P(),
            # psum replicates the results, and the check would all-reduce in every micro-batch.
            check_vma=False,
        )
        return lambda batch, *others: split(batch, others)

    return wrap


def micro_batches(mesh: Mesh, phase, train) -> int:
    """Returns the number of micro-batches: `micro_batches` of `train`, or the least number of equal parts with at most
    `tokens_per_device` tokens, but at least one row, on a device."""
    if not train.tokens_per_device:
        return train.micro_batches
    rows = -(-phase.batch // axis_size(mesh, ROWS))
    most = max(1, train.tokens_per_device // phase.length)
    return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= most)


def host_rows(mesh: Mesh, batch: int) -> np.ndarray:
    """Returns int64[b], sorted: the rows of the global batch on the devices of this process.

    They need not be contiguous: a mesh follows the links between devices, not their hosts.
    """
    slices = set()
    for device, index in rows(mesh).devices_indices_map((batch,)).items():
        if device.process_index == jax.process_index():
            slices.add(index[0].indices(batch))
    return np.concatenate([np.arange(*limits) for limits in sorted(slices)])


def to_devices(mesh: Mesh, arrays: dict, positions: np.ndarray, batch: int) -> dict:
    """Builds global arrays from this host's rows. positions: the rows' indices, from `host_rows`."""

    def build(array):
        def part(index):
            start, stop, _ = index[0].indices(batch)
            first = np.searchsorted(positions, start)
            return array[first : first + stop - start]

        shape = (batch, *array.shape[1:])
        return jax.make_array_from_callback(shape, rows(mesh), part)

    return {name: build(array) for name, array in arrays.items()}


def describe(shapes, rules) -> list[str]:
    """Returns one line per parameter: its path, shape, axes and the pattern that matched."""
    lines = []
    for name, leaf in by_path(shapes).items():
        pattern, spec = match(name, rules)
        lines.append(f"{name} {leaf.shape} {tuple(spec)}  <- {pattern}")
    return lines
