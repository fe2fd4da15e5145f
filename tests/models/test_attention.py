"""Attention: the implementations agree, and compile for the devices that they are for."""

import importlib
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.attending import (
    DROPOUT,
    GPU,
    HEADS,
    SETTINGS,
    SIZE,
    TPU,
    assert_close,
    attend,
    compute,
    fused,
    interpreted,
    keys_of,
    make_rows,
    on_tpu,
    plain,
)
from kits.slices import compiling, devices, needs_libtpu
from kits.small import small_config, small_objective, small_params

from bert_jax.data import batch
from bert_jax.models import attention
from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes

# --- The plain way --------------------------------------------------------------------------------


def test_a_token_sees_the_real_tokens_of_its_own_sequence():
    """Against a softmax over just these, token by token."""
    q, k, v, _, ids = make_rows(5, 128)
    found = plain(q, k, v, ids)
    for row, place in [(0, 127), (1, 3), (2, 39), (2, 40), (3, 100)]:
        seen = ids[row] == ids[row, place]
        scores = np.einsum("hk,mhk->hm", q[row, place], k[row, seen])
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        expected = np.einsum("hm,mhk->hk", shares, v[row, seen])
        np.testing.assert_allclose(found[row, place], expected, rtol=1e-5, atol=1e-6)


# --- TPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [128, 384, 640])
def test_splash_is_the_plain_one(length):
    """Forward and backward; in one block, and in five."""
    arrays = make_rows(5, length)
    assert_close(compute(interpreted, arrays), compute(plain, arrays), 1e-5)


def test_splash_is_the_plain_one_in_bfloat16():
    arrays = make_rows(5, 256)
    both = (compute(function, arrays, jnp.bfloat16) for function in (interpreted, plain))
    assert_close(*both, 1e-2)


def make_mesh(shape):
    keys = [f"mesh.{name}={size}" for name, size in zip(constraints.AXES, shape, strict=True)]
    return meshes.make_mesh(small_config(*keys).mesh, jax.devices()[: np.prod(shape)])


@pytest.mark.parametrize(("shape", "rows"), [((2, 2, 2), 8), ((1, 1, 4), 5), ((4, 2, 1), 3)])
def test_splash_on_a_mesh_is_that_of_one_device(shape, rows):
    """Each device computes its rows and heads; rows that do not divide are computed by all."""
    mesh = make_mesh(shape)
    arrays = make_rows(rows, 128)
    expected = compute(interpreted, arrays)
    with jax.set_mesh(mesh):
        found = compute(constraints.by_heads(interpreted), arrays)
    assert_close(found, expected, 1e-6)
    parts = {part.data.shape for part in found[0].addressable_shards}
    assert parts == {(8 // 4, 128, HEADS // 2, SIZE)} or shape != (2, 2, 2)


@pytest.mark.parametrize("rate", [0.0, DROPOUT])
@pytest.mark.parametrize("length", [128, 384])
def test_fused_is_the_plain_one(length, rate):
    """Forward and backward, the same probabilities dropped; rows one by one, and several at once."""
    arrays = make_rows(8 if length == 128 else 5, length, heads=16)
    both = (compute(partial(function, rate=rate), arrays) for function in (fused, plain))
    assert_close(*both, 1e-5)


def test_fused_is_the_plain_one_in_bfloat16():
    arrays = make_rows(4, 256, heads=8)
    both = (
        compute(partial(function, rate=DROPOUT), arrays, jnp.bfloat16)
        for function in (fused, plain)
    )
    assert_close(*both, 1e-2)


@pytest.mark.parametrize(("shape", "rows"), [((2, 2, 2), 8), ((1, 1, 2), 3)])
def test_fused_on_a_mesh_is_that_of_one_device(shape, rows):
    """Dropout, too: a head is known by its number among all."""
    mesh = make_mesh(shape)
    arrays = make_rows(rows, 128, heads=16)
    expected = compute(partial(fused, rate=DROPOUT), arrays)

    def shared(q, k, v, ids):
        function = partial(attention.fused, rate=DROPOUT, interpret=True)
        return constraints.by_heads(function)(q, k, v, ids, keys_of(ids))

    with jax.set_mesh(mesh):
        assert_close(compute(shared, arrays), expected, 1e-6)


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [("splash", SETTINGS), ("fused", ("model.positions=128", "model.width=128", "model.heads=8"))],
)
def test_a_model_learns_the_same_by_a_kernel(monkeypatch, kernel, settings):
    """Packed rows, with one that is all padding: what padding sees reaches neither loss nor gradients."""
    on_tpu(monkeypatch)
    rows = batch.synthetic(4, 128, 10, 200, sequences=3)
    rows["sequence_ids"][1, 100:] = 0
    rows["sequence_ids"][2] = 0
    inside = np.take_along_axis(rows["sequence_ids"], rows["masked_positions"], 1) > 0
    rows["masked_weights"] *= inside
    rows["pair_weights"][2] = 0

    def learn(kind):
        made = small_objective(*settings, f"model.attention={kind}")

        def loss(params):
            return made.loss(params, rows, made.weights(rows), jnp.uint32(1), train=True)[0]

        found = jax.make_jaxpr(loss)(small_params(made))
        assert ("pallas_call" in str(found)) == (kind == kernel)
        value, gradient = jax.jit(jax.value_and_grad(loss))(small_params(made))
        return value, np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])

    assert_close(learn(kernel), learn("xla"), 1e-5)


@needs_libtpu
@pytest.mark.parametrize(
    ("length", "shape", "dtype", "size"),
    [
        (128, (1, 1, 1), "bf16", 64),
        (128, (1, 1, 1), "f32", 64),
        (128, (1, 1, 1), "bf16", 32),
        (128, (1, 1, 1), "bf16", 128),
        (128, (2, 1, 2), "bf16", 64),
        (512, (1, 1, 1), "bf16", 64),
        (512, (2, 1, 2), "f32", 64),
    ],
)
@pytest.mark.parametrize("kind", ["splash", "fused"])
def test_kernels_compile_for_tpus(kind, length, shape, dtype, size):
    """On two of four devices by rows, on two by heads; forward and backward."""
    places = devices("v5e:2x2")[: np.prod(shape)]
    mesh = jax.sharding.Mesh(
        np.array(places).reshape(shape),
        constraints.AXES,
        axis_types=(jax.sharding.AxisType.Auto,) * 3,
    )
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(constraints.ROWS))
    real = {"bf16": jnp.bfloat16, "f32": jnp.float32}[dtype]
    x = jax.ShapeDtypeStruct((4, length, 4, size), real, sharding=where)
    ids = jax.ShapeDtypeStruct((4, length), jnp.int32, sharding=where)

    def total(q, k, v, ids):
        keys = keys_of(ids) if kind == "fused" else None
        return attend(kind, ids)(q, k, v, None, keys).astype(jnp.float32).sum()

    with jax.set_mesh(mesh), compiling(), jax.default_matmul_precision(None):
        assert attention.devices_of() == attention.devices_of(mesh) == TPU
        both = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
        text = both.lower(x, x, x, ids).compile().as_text()
    rows, heads = 4 // shape[0], 4 // shape[2]
    calls = [line for line in text.splitlines() if 'custom_call_target="tpu_custom_call"' in line]
    assert len(calls) == 2
    part = {"splash": [rows, heads, size, length], "fused": [rows, length, heads * size]}[kind]
    assert all(f"{dtype}[{','.join(map(str, part))}]" in line for line in calls)


# --- GPU ------------------------------------------------------------------------------------------


needs_gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="no GPU")


@pytest.mark.parametrize(
    ("implementation", "dtype", "tolerance"),
    [
        ("xla", jnp.float32, 1e-5),
        ("xla", jnp.bfloat16, 1e-2),
        pytest.param("cudnn", jnp.bfloat16, 1e-2, marks=needs_gpu),
    ],
)
def test_cudnn_is_asked_for_what_the_plain_one_does(implementation, dtype, tolerance):
    """Where there is no GPU, the same call computed here: its scale, and its mask by lengths."""
    *arrays, ids = make_rows(5, 96)
    arrays = (*arrays, np.minimum(ids, 1))  # of one sequence a row
    function = partial(attention.cudnn, implementation=implementation)
    assert_close(*(compute(each, arrays, dtype) for each in (function, plain)), tolerance)
    assert (ids.sum(1) == 0).any()


def test_cudnn_is_what_a_gpu_runs(monkeypatch):
    """Forward and backward, as the program for one says: no GPU is here to run it."""
    library = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(library, "check_cudnn_version", lambda: 91200)
    monkeypatch.setattr(attention, "devices_of", lambda mesh=None: GPU)
    x = jax.ShapeDtypeStruct((4, 100, 2, 64), jnp.bfloat16)

    def total(q, k, v, ids):
        return attend("auto", ids)(q, k, v, None, None).astype(jnp.float32).sum()

    program = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    traced = program.trace(x, x, x, jax.ShapeDtypeStruct((4, 100), jnp.int32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert re.findall(r"custom_call @(__cudnn\S+?)\(", text) == [
        "__cudnn$fmhaSoftmax",
        "__cudnn$fmhaSoftmaxBackward",
    ]
    assert text.count(r"mask_type\22: \22PADDING\22") == 2
