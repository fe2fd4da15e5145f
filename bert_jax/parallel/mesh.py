"""Where arrays lie: the mesh and its axes, ordered path patterns for parameters, and this host's rows of a batch."""

import math
import re

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.errors import BadInput

AXES = ("data", "fsdp", "tensor")
ROWS = ("data", "fsdp")  # over which the rows of a batch are split
# The table of word embeddings, on one axis only: XLA replicates a table that is split on both.
TABLE = P(("tensor", "fsdp"), None)

# Path pattern -> axes of the array; the first that matches wins, and every parameter must match one.
# `tensor` splits heads, hidden layers and the vocabulary; `fsdp` splits what is left of the large ones.
RULES = (
    (r"embedder/words$", TABLE),
    (r"embedder/(positions|segments)$", P()),
    (r"(query|key|value|up)/kernel$", P("fsdp", "tensor")),
    (r"(query|key|value|up)/bias$", P("tensor")),
    (r"(out|down)/kernel$", P("tensor", "fsdp")),
    (r"(pooler|dense)/kernel$", P("fsdp", None)),
    (r"mlm/bias$", P(("tensor", "fsdp"))),
    (r"(bias|scale|kernel)$", P()),
)


def make_mesh(config, devices=None) -> Mesh:
    """The mesh of `config.mesh` over all devices; -1 on the data axis takes what the others leave.

    Of several TPU slices, whose devices only a slow network connects, `data` alone goes from one to the other.
    """
    devices = jax.devices() if devices is None else devices
    inner = config.fsdp * config.tensor
    data = len(devices) // inner if config.data == -1 else config.data
    shape = f"data={config.data} fsdp={config.fsdp} tensor={config.tensor}"
    if data < 1 or data * inner != len(devices):
        raise BadInput(f"config.mesh: {shape} does not fit {len(devices)} devices")
    slices = count_slices(devices)
    if data % slices:
        size = len(devices) // slices
        raise BadInput(
            f"config.mesh: {shape}: fsdp and tensor do not fit into each of {slices} slices of {size} devices"
        )
    inside, across = (data // slices, config.fsdp, config.tensor), (slices, 1, 1)
    # With 4 x 4 devices, a tensor axis of 2 is a part of one of their axes.
    options = dict(devices=devices, allow_split_physical_axes=True)
    if slices == 1:
        places = mesh_utils.create_device_mesh(inside, **options)
    else:
        places = mesh_utils.create_hybrid_device_mesh(inside, across, **options)
    return Mesh(places, AXES, axis_types=(AxisType.Auto,) * 3)


def count_slices(devices) -> int:
    """How many TPU slices the devices are of. What JAX calls a slice of GPUs is a host, and counts as one."""
    if devices[0].platform != "tpu":
        return 1
    return len({getattr(device, "slice_index", 0) for device in devices})


def check_model(mesh: Mesh, model) -> None:
    """Raises BadInput where a size of `config.model` does not divide over the mesh. The vocabulary is padded."""
    for key, axis in (("heads", "tensor"), ("feed_forward", "tensor"), ("width", "fsdp")):
        if model[key] % mesh.shape[axis]:
            parts = f"config.mesh.{axis}={mesh.shape[axis]}"
            raise BadInput(f"config.model.{key}={model[key]}: does not divide over {parts}")


def path_name(path) -> str:
    """'encoder/blocks_0/attention/query/kernel' of a key path."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)


def match(name: str, rules=RULES) -> tuple[str, P]:
    for pattern, spec in rules:
        if re.search(pattern, name):
            return pattern, spec
    raise BadInput(f"parameter {name}: no sharding rule matches it")


def parameters(shapes, mesh: Mesh, rules=RULES):
    """Shardings of a tree of parameters, by their paths."""

    def place(path, leaf):
        name = path_name(path)
        spec = match(name, rules)[1]
        for size, axes in zip(leaf.shape, spec, strict=False):
            parts = axis_size(mesh, axes)
            if size % parts:
                raise BadInput(
                    f"config.mesh: {name} of shape {leaf.shape} does not divide over {axes}={parts}"
                )
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(place, shapes)


def axis_size(mesh: Mesh, axes) -> int:
    names = axes if isinstance(axes, tuple) else (axes,) if axes else ()
    return math.prod(mesh.shape[name] for name in names)


def state(shapes, mesh: Mesh, rules=RULES):
    """Shardings of a State: what has a parameter's path and shape lies where it lies, the rest everywhere."""
    places = parameters(shapes.params, mesh, rules)
    known = {
        path_name(path): (leaf.shape, sharding)
        for (path, leaf), sharding in zip(
            jax.tree_util.tree_leaves_with_path(shapes.params),
            jax.tree.leaves(places),
            strict=True,
        )
    }

    def place(path, leaf):
        names = path_name(path).split("/")
        for start in range(len(names)):
            shape, sharding = known.get("/".join(names[start:]), (None, None))
            if shape == leaf.shape:
                return sharding
        return replicated(mesh)

    opt_state = jax.tree_util.tree_map_with_path(place, shapes.opt_state)
    return type(shapes)(replicated(mesh), places, opt_state)


def placed(shapes, places):
    """Shapes with the shardings their arrays will have: what a program is compiled for."""

    def place(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, shapes, places)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def rows(mesh: Mesh) -> NamedSharding:
    """Of batches: the leading axis over data and fsdp."""
    return NamedSharding(mesh, P(ROWS))


def summed(mesh: Mesh, dtype):
    """What adds up over the devices, in `dtype`, a function's sums over rows; None where the compiler is to do it.

    Where a mesh splits rows alone, every device has all parameters and its gradients are added up once a step, after
    all micro-batches. The compiler, left alone, does it in every micro-batch, and twice for a table that is used
    twice. Where parameters are split, each micro-batch needs its collectives anyway.
    """
    if mesh.shape["fsdp"] * mesh.shape["tensor"] > 1 or mesh.size == 1:
        return None

    def wrap(function):
        def local(batch, *others):
            values, gradients = function(batch, *others)
            rounded = jax.tree.map(lambda x: x.astype(dtype), gradients)
            values, rounded = jax.lax.psum((values, rounded), "data")
            return values, jax.tree.map(lambda x, like: x.astype(like.dtype), rounded, gradients)

        def over_devices(batch, *others):
            places = (P(ROWS), *(P() for _ in others))
            # Unchecked: replication is by construction, and the check would add up in every micro-batch again.
            split = jax.shard_map(local, mesh=mesh, in_specs=places, out_specs=P(), check_vma=False)
            return split(batch, *others)

        return over_devices

    return wrap


def micro_batches(mesh: Mesh, batch: int, train) -> int:
    """Parts of a batch by `config.train`: as many as it says, or the fewest equal ones of at most `rows_per_device`."""
    if not train.rows_per_device:
        return train.micro_batches
    rows = -(-batch // axis_size(mesh, ROWS))
    return next(
        n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= train.rows_per_device
    )


def check_rows(mesh: Mesh, batch: int, micro_batches: int, key: str) -> None:
    parts = axis_size(mesh, ROWS) * micro_batches
    if batch % parts:
        devices = axis_size(mesh, ROWS)
        raise BadInput(
            f"config.{key}={batch}: does not divide over {devices} devices and {micro_batches} micro-batches"
        )


def host_rows(mesh: Mesh, batch: int, process: int | None = None) -> np.ndarray:
    """int64[b], sorted: the rows of the global batch that a host's devices hold (this one's if no process is named).

    They need not be contiguous: a mesh follows the links between devices, not their hosts.
    """
    process = jax.process_index() if process is None else process
    places = rows(mesh).devices_indices_map((batch,))
    slices = {
        index[0].indices(batch)
        for device, index in places.items()
        if device.process_index == process
    }
    return np.concatenate([np.arange(*bounds) for bounds in sorted(slices)])


def to_devices(mesh: Mesh, arrays: dict, positions: np.ndarray, batch: int) -> dict:
    """Global arrays from this host's rows (in the order of `positions`, as `host_rows` gives them)."""

    def place(array):
        def part(index):
            start, stop, _ = index[0].indices(batch)
            first = np.searchsorted(positions, start)
            return array[first : first + stop - start]

        shape = (batch, *array.shape[1:])
        return jax.make_array_from_callback(shape, rows(mesh), part)

    return {name: place(array) for name, array in arrays.items()}


def describe(shapes, rules=RULES) -> list[str]:
    """One line a parameter: its path, shape, axes and the pattern that chose them."""
    lines = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        pattern, spec = match(path_name(path), rules)
        lines.append(f"{path_name(path)} {leaf.shape} {tuple(spec)}  <- {pattern}")
    return lines
